// Protects the names of unannounced projects. A tool call that mentions a code name is denied. In a
// tool's result, "[codename]" replaces the name.

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
    words: { description: "code names to protect; case is ignored", type: "array", minItems: 1, items: { type: "string", minLength: 3 } },
  },
};

// codenames returns the stage for a configuration. Gatekit has already checked the configuration
// against the schema.
function codenames(config: { words: string[] }): Stage {
  // The longest words come first. So "Blue Heron" is replaced even if "Blue" is a word, too.
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

// inspect returns the verdict. Reasons and findings are recorded, so they hold no code name.
function inspect(words: RegExp, message: Message): Verdict {
  const body: unknown = message.body.length > 0 ? JSON.parse(message.body.toString()) : null;
  const edits: Edit[] = [];
  const findings: Finding[] = [];
  for (const { pointer, text, isName } of texts(body)) {
    const replaced = text.replace(words, "[codename]");
    if (replaced === text) continue;
    const finding: Finding = { type: "codename", pointer };
    if (isName) {
      // A member name is not replaced: the client reads the member by its name.
      return { action: "ACTION_DENY", reason: "the name of a member holds a code name", findings: [finding] };
    }
    if (message.kind === "KIND_REQUEST") {
      return { action: "ACTION_DENY", reason: "the arguments hold a code name", findings: [finding] };
    }
    findings.push(finding);
    edits.push({ pointer, value: Buffer.from(JSON.stringify(replaced)) });
  }
  if (edits.length > 0) return { action: "ACTION_MODIFY", reason: "code names were cut out", edits, findings };
  return { action: "ACTION_ALLOW" };
}

type Text = { pointer: string; text: string; isName: boolean };

// texts yields each string of a JSON value with its pointer (RFC 6901). It also yields each member
// name, with the pointer of its object.
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

main({ name: "codenames", version: "1.0.0", doc: "protects code names", schema: Buffer.from(JSON.stringify(schema)) }, codenames);
