"""Protects the names of unannounced projects.

A tool call that mentions a code name is denied. In a tool's result, "[codename]" replaces the name.
"""

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
            "description": "code names to protect; case is ignored",
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "minLength": 3},
        }
    },
}


class Codenames:
    """A stage: the plugin with one configuration."""

    wants = pb.Wants(
        methods=["tools/call"],
        kinds=[pb.KIND_REQUEST, pb.KIND_RESPONSE, pb.KIND_ERROR],
    )
    needs = pb.Needs(body=True)

    def __init__(self, config):
        """Gatekit has already checked config against SCHEMA."""
        # The longest words come first. So "Blue Heron" is replaced even if "Blue" is a word, too.
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
        """Returns the verdict. Reasons and findings are recorded, so they hold no code name."""
        # Python cannot parse integers of thousands of digits. The plugin needs no exact numbers.
        body = json.loads(message.body or "null", parse_int=float)
        edits, findings = [], []
        for pointer, text, is_name in texts(body):
            replaced, found = self.words.subn("[codename]", text)
            if not found:
                continue
            findings.append(pb.Finding(type="codename", pointer=pointer))
            if is_name:  # not replaced: the client reads the member by its name
                return pb.Verdict(
                    action=pb.ACTION_DENY,
                    reason="the name of a member holds a code name",
                    findings=findings[-1:],
                )
            if message.kind == pb.KIND_REQUEST:
                return pb.Verdict(
                    action=pb.ACTION_DENY,
                    reason="the arguments hold a code name",
                    findings=findings,
                )
            edits.append(pb.Edit(pointer=pointer, value=json.dumps(replaced).encode()))
        if edits:
            return pb.Verdict(
                action=pb.ACTION_MODIFY,
                reason="code names were cut out",
                edits=edits,
                findings=findings,
            )
        return pb.Verdict(action=pb.ACTION_ALLOW)


def texts(value, pointer=""):
    """Yields each string of a JSON value: its pointer (RFC 6901), the string, and False.

    Yields each member name, too: the pointer of its object, the name, and True.
    """
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
    description = pb.Description(
        name="codenames",
        version="1.0.0",
        doc="protects code names",
        schema=json.dumps(SCHEMA).encode(),
    )
    serve.main(description, Codenames)
