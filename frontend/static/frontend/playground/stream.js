// Reads an answer of the server while it grows: server-sent events over fetch, one call per list of tokens.
//
// Events: `data: {"choices": [{"tokens": [{text, probability, alternatives, places}], "finish_reason"}]}`,
// `data: {"error": {"message"}}`, `data: [DONE]`, and comment lines while nothing comes. Hanging up (the signal) cancels.

export function eventsOf(text) {
  // Whole events of a piece of the stream, and what is left of the last one.
  const parts = text.split("\n\n");
  const rest = parts.pop();
  const events = parts
    .flatMap((part) => part.split("\n"))
    .filter((line) => line.startsWith("data: ") && line !== "data: [DONE]")
    .map((line) => JSON.parse(line.slice("data: ".length)));
  return [events, rest];
}

async function problemOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

export async function follow(url, body, signal, onTokens) {
  // Throws an Error with the server's words; an AbortError when the signal ended it.
  const response = await fetch(url, { method: "POST", headers: { Accept: "text/event-stream" }, body, signal });
  if (!response.ok) {
    throw new Error(await problemOf(response));
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    let events;
    [events, rest] = eventsOf(rest + value);
    for (const event of events) {
      if (event.error) {
        throw new Error(event.error.message);
      }
      for (const choice of event.choices) {
        onTokens(choice.tokens);
      }
    }
  }
}
