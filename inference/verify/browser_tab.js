// A tab's worker without a network, for browser_process.py: the page's own service and kernels, fed by messages. One at a
// time, each answered by one:
//   {origin}            where the modules lie              -> what the kernels are
//   {claim}             hold the slice that lies at /slice  -> null
//   {chunks: [base64]}  one request                         -> [base64], the chunks of its answer

const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const toBase64 = (bytes) => {
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
};
const holdings = new Map();
let origin, frames, joiner, kernels, service, answered;

async function start(address) {
  origin = address;
  frames = await import(`${origin}/frames.js`);
  joiner = new frames.Reassembler(256 << 20);
  const { ExpertService } = await import(`${origin}/service.js`);
  kernels = await (await import(`${origin}/kernels.js`)).openKernels();
  service = new ExpertService(holdings, { send: (frame) => answered(frame), consumed: () => {}, onAnswer: () => {} });
  return { kernelClass: kernels.kernelClass, threads: kernels.threads };
}

async function hold(claim) {
  const slice = new Uint8Array(await (await fetch(`${origin}/slice`)).arrayBuffer());
  const kernel = await kernels.open(slice.length);
  kernel.bytes().set(slice);
  await kernel.open();
  holdings.set(claim.claim_id, { claim, kernel });
  return null;
}

async function answer(chunks) {
  const frame = await new Promise((resolve) => {
    answered = resolve;
    for (const chunk of chunks) {
      const whole = joiner.add(frames.decodeFrames(fromBase64(chunk))[0]);
      if (whole) service.receive(whole);
    }
  });
  return frames.splitFrame(frame).map((chunk) => toBase64(frames.encodeFrame(chunk)));
}

onmessage = async ({ data }) => {
  try {
    let value;
    if (data.origin) value = await start(data.origin);
    else if (data.claim) value = await hold(data.claim);
    else value = await answer(data.chunks);
    postMessage({ value });
  } catch (error) {
    postMessage({ error: String(error) });
  }
};
