// What this browser keeps between visits: the device's token and the owner's choices. A private window may refuse to keep
// anything: then it lasts until the page is closed.

const here = new Map();

export const remembered = {
  get(key) {
    try {
      return localStorage.getItem(`expertswarm.${key}`) ?? here.get(key) ?? null;
    } catch {
      return here.get(key) ?? null;
    }
  },

  // null forgets.
  set(key, value) {
    here.set(key, value);
    try {
      if (value === null) localStorage.removeItem(`expertswarm.${key}`);
      else localStorage.setItem(`expertswarm.${key}`, value);
    } catch {
      // Kept in `here` only.
    }
  },
};
