// Server-sent events out of the body of an answer: unlike EventSource, with a key.

/** Yield `{data, comment}` of each event; comments come as events of their own. */
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "" && data.length) {
          yield { data: data.join("\n"), comment: "" };
          data = [];
        } else if (line.startsWith(":")) {
          yield { data: "", comment: line.slice(1).trim() };
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
