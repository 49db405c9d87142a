"""Serves one plugin: the handshake of hashicorp/go-plugin, and the service of plugin.proto.

Nothing here depends on what the plugin inspects.
"""

import asyncio
import json
import os
import sys

import grpc

from gatekit.plugin.v1 import plugin_pb2 as pb
from gatekit.plugin.v1 import plugin_pb2_grpc

# The limit that Gatekit has for its own side. gRPC's default of 4 MiB would reject large MCP
# messages, and Gatekit would deny them.
MAX_BYTES = 256 << 20


class Plugin(plugin_pb2_grpc.PluginServicer):
    """The service of plugin.proto. The function new_stage makes a stage from a configuration."""

    def __init__(self, description, new_stage):
        self.description, self.new_stage = description, new_stage
        self.stages, self.last_id = {}, 0

    async def Describe(self, request, context):
        return pb.DescribeResponse(plugins=[self.description])

    async def Configure(self, request, context):
        try:
            stage = self.new_stage(json.loads(request.config))
        except Exception as e:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
        self.last_id += 1
        self.stages[self.last_id] = stage
        return pb.ConfigureResponse(
            stage=self.last_id, wants=stage.wants, needs=stage.needs, canary=stage.canary
        )

    async def Inspect(self, requests, context):
        async for inspect in requests:
            yield pb.InspectResponse(seq=inspect.seq, verdicts=[self.verdict(inspect)])

    def verdict(self, inspect):
        """Returns the verdict of the stage. If the stage fails, on_error in gatekit.toml decides."""
        try:
            (stage,) = inspect.stages  # Gatekit sends several stages only to its own plugins
            return self.stages[stage].inspect(inspect.message)
        except Exception as e:  # not str(e), which may hold a part of the message
            return pb.Verdict(error=f"{type(e).__name__} while inspecting")

    async def Close(self, request, context):
        self.stages.pop(request.stage, None)
        return pb.CloseResponse()


def unary(method):
    """Returns a handler for a method. The messages of this method are written as bytes."""
    return grpc.unary_unary_rpc_method_handler(method)


async def serve(plugin):
    """Serves the plugin until Gatekit asks it to end, or Gatekit itself has ended."""
    ended = asyncio.Event()

    async def check(request, context):
        return b"\x08\x01"  # HealthCheckResponse{status: SERVING}

    async def shutdown(request, context):
        ended.set()
        return b""

    # An asynchronous server: Gatekit keeps streams open, and each would occupy a thread otherwise.
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_BYTES),
            ("grpc.max_send_message_length", MAX_BYTES),
        ]
    )
    plugin_pb2_grpc.add_PluginServicer_to_server(plugin, server)
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": unary(check)}),
            grpc.method_handlers_generic_handler(
                "plugin.GRPCController", {"Shutdown": unary(shutdown)}
            ),
        ]
    )
    path = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "plugin.sock")
    server.add_insecure_port("unix:" + path)
    await server.start()
    print(f"1|1|unix|{path}|grpc", flush=True)  # the handshake; nothing else may go to stdout

    parent = os.getppid()
    while not ended.is_set() and os.getppid() == parent:  # a killed Gatekit sends no Shutdown
        try:
            await asyncio.wait_for(ended.wait(), 1)
        except asyncio.TimeoutError:
            pass
    await server.stop(None)


def main(description, new_stage):
    """Serves the plugin, or explains the program if Gatekit did not start it."""
    if os.environ.get("GATEKIT_PLUGIN") != "gatekit.plugin.v1":
        sys.exit(
            f"This is the plugin {description.name!r}, which Gatekit starts: "
            "name it in a gatekit.toml."
        )
    asyncio.run(serve(Plugin(description, new_stage)))
