// What the page and its Web Worker say, in the language of the page. The English text is the key; the server gives the
// others (frontend/worker_texts.py names them all), so no script has to be translated. What the server itself says is English
// with a stable code, and is said by the text of that code.

let language = { texts: {}, codes: {} };

// translated: {texts: English text -> text, codes: code -> text}; what is missing stays English.
export const speak = (translated) => (language = translated);

// {NAME} in the text stands for values.NAME.
export const say = (text, values = {}) => filled(language.texts[text] ?? text, values);

// What the server says: its code, and its own words for it, which have to do where the code is not known here.
export const sayCode = (code, message) => (Object.hasOwn(language.codes, code) ? filled(language.codes[code], { message }) : message);

const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
