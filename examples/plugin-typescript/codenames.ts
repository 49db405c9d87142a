// Keeps the names of unannounced projects inside: a tool call that mentions one is refused, and where a tool's answer does, a placeholder takes its place.

import type { Edit } from "./gen/gatekit/plugin/v1/Edit.js";
import type { Finding } from "./gen/gatekit/plugin/v1/Finding.js";
import type { Message__Output as Message } from "./gen/gatekit/plugin/v1/Message.js";
import type { Verdict } from "./gen/gatekit/plugin/v1/Verdict.js";
import { main, type Stage } from "./serve.js";

const schema = {
  type: "object",
  additionalProperties: false,
  required: ["words"],
  properties: {
    words: { description: "what nobody outside may read, in any case", type: "array", minItems: 1, items: { type: "string", minLength: 3 } },
  },
};

// codenames makes the stage of a configuration, which was held against the schema before.
function codenames(config: { words: string[] }): Stage {
  // The longest come first, so that of "Blue Heron" and "Blue" nothing is left.
  const longest = config.words.toSorted((a, b) => b.length - a.length);
  const words = new RegExp(longest.map((w) => w.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join("|"), "giu");
  const params = { name: "canary", arguments: { text: longest[0] } };
  return {
    wants: { methods: ["tools/call"], kinds: ["KIND_REQUEST", "KIND_RESPONSE", "KIND_ERROR"] },
    needs: { body: true },
    canary: {
      what: "a code name in a tool's arguments",
      message: {
        kind: "KIND_REQUEST",
        direction: "DIRECTION_TO_SERVER",
        method: "tools/call",
        server: "canary",
        name: "canary",
        body: Buffer.from(JSON.stringify(params)),
      },
      action: "ACTION_DENY",
    },
    inspect: (message) => inspect(words, message),
  };
}

// inspect judges. Neither reasons nor findings say which word it was: they are recorded.
function inspect(words: RegExp, message: Message): Verdict {
  const body: unknown = message.body.length > 0 ? JSON.parse(message.body.toString()) : null;
  const edits: Edit[] = [];
  const findings: Finding[] = [];
  for (const { pointer, text, isName } of texts(body)) {
    const cleared = text.replace(words, "[codename]");
    if (cleared === text) continue;
    const finding: Finding = { type: "codename", pointer };
    if (isName) {
      // Others go by it: it is not ours to change.
      return { action: "ACTION_DENY", reason: "the name of a member holds a code name", findings: [finding] };
    }
    if (message.kind === "KIND_REQUEST") {
      return { action: "ACTION_DENY", reason: "the arguments hold a code name", findings: [finding] };
    }
    findings.push(finding);
    edits.push({ pointer, value: Buffer.from(JSON.stringify(cleared)) });
  }
  if (edits.length > 0) return { action: "ACTION_MODIFY", reason: "code names were cut out", edits, findings };
  return { action: "ACTION_ALLOW" };
}

type Text = { pointer: string; text: string; isName: boolean };

// texts are the strings of a JSON value with their pointers (RFC 6901); the pointer of a member's name is that of its object.
function* texts(value: unknown, pointer = ""): Generator<Text> {
  if (typeof value === "string") {
    yield { pointer, text: value, isName: false };
  } else if (typeof value === "object" && value !== null) {
    const named = !Array.isArray(value);
    for (const [name, member] of Object.entries(value)) {
      if (named) yield { pointer, text: name, isName: true };
      yield* texts(member, pointer + "/" + name.replaceAll("~", "~0").replaceAll("/", "~1"));
    }
  }
}

main({ name: "codenames", version: "1.0.0", doc: "keeps code names inside", schema: Buffer.from(JSON.stringify(schema)) }, codenames);
