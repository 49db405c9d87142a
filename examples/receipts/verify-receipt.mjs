// Verifies the receipt that Gatekit puts into the result of a tool ([audit] receipts = true).
// No dependencies, no network. In Node 20 or newer:
//   node verify-receipt.mjs KEY.pub RESULT.json [ARGUMENTS.json] [--server=NAME] [--tool=NAME]
//     [--log=ORIGIN]
// In a browser: import { verifyReceipt } from "./verify-receipt.mjs"

const PREFIX = "gatekit receipt v1\n";
const TEXTS = ["log", "key", "time", "server", "tool", "arguments", "result", "policy", "decision",
  "checkpointRoot", "signature"];
const NUMBERS = ["version", "record", "checkpointSize"];

// verifyReceipt returns the receipt, or throws an Error that says why it is not valid. All three
// are texts: the public key (NAME+HASH+KEY), the result of the tool or the whole JSON-RPC response,
// and the arguments that the client sent. wanted has the values that members of the receipt must
// have, such as { server: "files", tool: "read" }: other tools may have got equal arguments.
export async function verifyReceipt(publicKey, resultText, argumentsText = "{}", wanted = {}) {
  const key = await readKey(publicKey);
  let result = parse(resultText);
  if (result instanceof Map && result.has("jsonrpc")) {
    // More members could look like a result that the receipt does not cover.
    if (result.size !== 3 || !result.has("id") || !result.has("result")) {
      throw new Error("read the result: a response has the members jsonrpc, id and result only");
    }
    result = result.get("result");
  }
  if (!(result instanceof Map)) throw new Error("read the result: it is no JSON object");
  const meta = result.get("_meta");
  const receipt = meta instanceof Map ? meta.get("gatekit/receipt") : undefined;
  if (!(receipt instanceof Map)) {
    throw new Error(`the result has no receipt: ${meta?.get?.("gatekit/noReceipt") ?? ""}`);
  }
  meta.delete("gatekit/receipt");
  if (meta.size === 0) result.delete("_meta");
  if (receipt.size !== TEXTS.length + NUMBERS.length ||
      TEXTS.some((name) => typeof receipt.get(name) !== "string") ||
      NUMBERS.some((name) => !Number.isSafeInteger(receipt.get(name)))) {
    throw new Error("read the receipt: a member is missing, unknown or of another type");
  }
  if (receipt.get("version") !== 1) throw new Error("read the receipt: unknown version");
  if (receipt.get("key") !== key.id) {
    throw new Error(`the receipt is signed with key ${receipt.get("key")}, not with ${key.id}`);
  }
  const signature = fromBase64(receipt.get("signature"));
  const signed = new Map(receipt);
  signed.delete("signature");
  const ok = await crypto.subtle.verify("Ed25519", key.key, signature,
    new TextEncoder().encode(PREFIX + canonical(signed)));
  if (!ok) throw new Error("the receipt was changed: its signature is invalid");
  const args = parse(argumentsText.trim() === "" ? "{}" : argumentsText);
  for (const [name, value] of [["arguments", args], ["result", result]]) {
    if (await sha256(canonical(value)) !== receipt.get(name)) {
      throw new Error(`the receipt does not match the ${name}`);
    }
  }
  for (const [name, value] of Object.entries(wanted)) {
    if (receipt.get(name) !== value) {
      throw new Error(`the receipt is for ${name} "${receipt.get(name)}", not "${value}"`);
    }
  }
  return Object.fromEntries(receipt);
}

// readKey reads a public key of gatekit audit key, and checks its hash.
async function readKey(line) {
  const [, name, hash, data] = /^([^+\s]+)\+([0-9a-f]{8})\+(\S+)$/.exec(line.trim()) ?? [];
  if (!name) throw new Error("the public key does not have the form NAME+HASH+KEY");
  const bytes = fromBase64(data); // the algorithm, which is 1, and 32 bytes
  const head = new TextEncoder().encode(name + "\n");
  if (bytes.length !== 33 || bytes[0] !== 1 ||
      (await sha256(new Uint8Array([...head, ...bytes]))).slice(0, 8) !== hash) {
    throw new Error("the public key was changed, or is no Ed25519 key");
  }
  return { id: `${name}+${hash}`, key: await crypto.subtle.importKey("raw", bytes.slice(1),
    "Ed25519", false, ["verify"]) };
}

async function sha256(data) {
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("");
}

function fromBase64(text) {
  const binary = atob(text);
  if (btoa(binary) !== text) throw new Error("not base64 in its only form");
  return Uint8Array.from(binary, (c) => c.charCodeAt(0));
}

// canonical returns a value of parse in the form of RFC 8785.
function canonical(v) {
  if (v instanceof Map) {
    const names = [...v.keys()].sort(); // by UTF-16 code units
    return `{${names.map((n) => `${JSON.stringify(n)}:${canonical(v.get(n))}`).join(",")}}`;
  }
  return Array.isArray(v) ? `[${v.map(canonical).join(",")}]` : JSON.stringify(v);
}

// parse parses JSON as JSON.parse does, with objects as Map. It also refuses duplicate names, lone
// surrogates and numbers that would lose their value.
function parse(text) {
  let at = 0;
  const fail = (why) => { throw new Error(`read JSON at ${at}: ${why}`); };
  const take = (pattern, what) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text) ?? fail(`${what} expected`);
    at = pattern.lastIndex;
    return found[0];
  };
  const blanks = () => take(/[ \t\n\r]*/y, "");
  const string = () => {
    let end = at, slashes;
    do {
      end = text.indexOf('"', end + 1);
      for (slashes = 0; text[end - 1 - slashes] === "\\"; slashes++);
    } while (slashes % 2 === 1);
    if (text[at] !== '"' || end < 0) fail("a string expected");
    const s = JSON.parse(text.slice(at, end + 1));
    at = end + 1;
    return s.isWellFormed() ? s : fail("a lone surrogate");
  };
  const list = (open, close, item) => {
    take(open, "a bracket");
    blanks();
    for (let first = true; text[at] !== close; first = false) {
      if (!first) take(/,/y, "a comma");
      blanks();
      item();
      blanks();
    }
    at++;
  };
  const value = () => {
    blanks();
    switch (text[at]) {
      case "{": {
        const object = new Map();
        list(/\{/y, "}", () => {
          const name = string();
          if (object.has(name)) fail("a duplicate name");
          blanks();
          take(/:/y, "a colon");
          object.set(name, value());
        });
        return object;
      }
      case "[": {
        const array = [];
        list(/\[/y, "]", () => array.push(value()));
        return array;
      }
      case '"':
        return string();
      case "t": case "f": case "n":
        return JSON.parse(take(/true|false|null/y, "a value"));
    }
    const number = take(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y, "a value");
    return isDouble(number) ? Number(number) : fail("a number is no IEEE 754 double");
  };
  const parsed = value();
  blanks();
  return at === text.length ? parsed : fail("more after the value");
}

// isDouble reports whether a JSON number keeps its value as a double. A whole number with a point
// or an exponent must be the double rounded to its digits.
function isDouble(text) {
  const [digits, exponent] = decimal(text), number = Number(text);
  if (digits === "") return true;
  if (!Number.isFinite(number) || number === 0) return false;
  const isWritten = (written) => decimal(written).join() === `${digits},${exponent}`;
  return isWritten(String(number)) || /[.eE]/.test(text) && digits.length <= 17 &&
    (exponent < digits.length || isWritten(number.toExponential(digits.length - 1)));
}

// decimal returns the digits of a number without outer zeros, and a power of ten (0.DIGITS).
function decimal(text) {
  const [mantissa, power = "0"] = text.toLowerCase().replace(/^-/, "").split(/e(.*)/s);
  const [whole, fraction = ""] = mantissa.split(".");
  const all = (whole + fraction).replace(/^0+/, "");
  return [all.replace(/0+$/, ""), Number(power) - fraction.length + all.length];
}

if (globalThis.process?.argv?.[1]?.endsWith("verify-receipt.mjs")) {
  const { readFileSync } = await import("node:fs");
  const { parseArgs } = await import("node:util");
  const name = { type: "string" };
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }); // refuses other bytes
  try {
    const { values, positionals } = parseArgs({ allowPositionals: true,
      options: { server: name, tool: name, log: name } });
    if (positionals.length < 2 || positionals.length > 3) {
      throw new Error("usage: node verify-receipt.mjs KEY.pub RESULT.json [ARGUMENTS.json]");
    }
    const [key, result, args] = positionals.map((file) => decoder.decode(readFileSync(file)));
    const receipt = await verifyReceipt(key, result, args, { ...values });
    console.log(JSON.stringify({ valid: true, receipt }));
  } catch (error) {
    console.log(JSON.stringify({ valid: false, error: error.message }));
    process.exitCode = 1;
  }
}
