"""Keeps the names of unannounced projects inside: a tool call that mentions one is refused, and where a tool's answer does, a placeholder takes its place."""

import json
import re

import serve
from gatekit.plugin.v1 import plugin_pb2 as pb

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["words"],
    "properties": {
        "words": {
            "description": "what nobody outside may read, in any case",
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "minLength": 3},
        }
    },
}


class Codenames:
    """A stage: it judges by one configuration."""

    wants = pb.Wants(methods=["tools/call"], kinds=[pb.KIND_REQUEST, pb.KIND_RESPONSE, pb.KIND_ERROR])
    needs = pb.Needs(body=True)

    def __init__(self, config):  # which was held against SCHEMA before
        # The longest come first, so that of "Blue Heron" and "Blue" nothing is left.
        longest = sorted(config["words"], key=len, reverse=True)
        self.words = re.compile("|".join(map(re.escape, longest)), re.IGNORECASE)
        params = {"name": "canary", "arguments": {"text": longest[0]}}
        self.canary = pb.Canary(
            what="a code name in a tool's arguments",
            message=pb.Message(
                kind=pb.KIND_REQUEST,
                direction=pb.DIRECTION_TO_SERVER,
                method="tools/call",
                server="canary",
                name="canary",
                body=json.dumps(params).encode(),
            ),
            action=pb.ACTION_DENY,
        )

    def inspect(self, message):
        """Neither reasons nor findings say which word it was: they are recorded."""
        # Numbers are not looked at; as integers, those of thousands of digits would be an error.
        body = json.loads(message.body or "null", parse_int=float)
        edits, findings = [], []
        for pointer, text, is_name in texts(body):
            cleared, found = self.words.subn("[codename]", text)
            if not found:
                continue
            findings.append(pb.Finding(type="codename", pointer=pointer))
            if is_name:  # others go by it: it is not ours to change
                return pb.Verdict(action=pb.ACTION_DENY, reason="the name of a member holds a code name", findings=findings[-1:])
            if message.kind == pb.KIND_REQUEST:
                return pb.Verdict(action=pb.ACTION_DENY, reason="the arguments hold a code name", findings=findings)
            edits.append(pb.Edit(pointer=pointer, value=json.dumps(cleared).encode()))
        if edits:
            return pb.Verdict(action=pb.ACTION_MODIFY, reason="code names were cut out", edits=edits, findings=findings)
        return pb.Verdict(action=pb.ACTION_ALLOW)


def texts(value, pointer=""):
    """Every string of a JSON value with its pointer (RFC 6901); for the name of a member, that of its object."""
    if isinstance(value, str):
        yield pointer, value, False
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from texts(item, f"{pointer}/{i}")
    elif isinstance(value, dict):
        for name, member in value.items():
            yield pointer, name, True
            yield from texts(member, pointer + "/" + name.replace("~", "~0").replace("/", "~1"))


if __name__ == "__main__":
    serve.main(pb.Description(name="codenames", version="1.0.0", doc="keeps code names inside", schema=json.dumps(SCHEMA).encode()), Codenames)
