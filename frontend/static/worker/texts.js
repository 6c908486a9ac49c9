// What the page and its Web Worker say, in the language of the page. The English text is the key; the server gives the
// others (frontend/worker_texts.py names them all), so no script has to be translated.

let texts = {};

// translated: English text -> text; what is missing stays English.
export const speak = (translated) => (texts = translated);

// {NAME} in the text stands for values.NAME.
export const say = (text, values = {}) => (texts[text] ?? text).replace(/\{(\w+)\}/g, (_, name) => values[name]);
