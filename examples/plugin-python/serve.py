"""What a plugin of Gatekit has to do beside judging, for one plugin in Python: the handshake of hashicorp/go-plugin, and the service of plugin.proto. Nothing here is about what is judged."""

import asyncio
import json
import os
import sys

import grpc

from gatekit.plugin.v1 import plugin_pb2 as pb
from gatekit.plugin.v1 import plugin_pb2_grpc

MAX_BYTES = 256 << 20  # gRPC's 4 MiB would refuse large messages of MCP, which Gatekit then denies


class Plugin(plugin_pb2_grpc.PluginServicer):
    def __init__(self, description, stage):
        self.description, self.stage, self.stages, self.last = description, stage, {}, 0

    async def Describe(self, request, context):
        return pb.DescribeResponse(plugins=[self.description])

    async def Configure(self, request, context):
        try:
            stage = self.stage(json.loads(request.config))
        except Exception as e:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
        self.last += 1
        self.stages[self.last] = stage
        return pb.ConfigureResponse(stage=self.last, wants=stage.wants, needs=stage.needs, canary=stage.canary)

    async def Inspect(self, requests, context):
        async for question in requests:
            yield pb.InspectResponse(seq=question.seq, verdicts=[self.ask(question)])

    def ask(self, question):
        # Stages of one process may be asked in one question; Gatekit does so with its own only.
        try:
            (number,) = question.stages
            return self.stages[number].inspect(question.message)
        except Exception as e:  # on_error says what becomes of the message; not str(e), which may hold some of it
            return pb.Verdict(error=f"{type(e).__name__} while inspecting")

    async def Close(self, request, context):
        self.stages.pop(request.stage, None)
        return pb.CloseResponse()


def unary(method):
    """A method of a service whose messages are so small that they are written by hand: bytes in, bytes out."""
    return grpc.unary_unary_rpc_method_handler(method)


async def serve(plugin):
    over = asyncio.Event()

    async def check(request, context):
        return b"\x08\x01"  # HealthCheckResponse{status: SERVING}

    async def shutdown(request, context):
        over.set()
        return b""

    # asyncio, because Gatekit holds streams open: with a thread for each, a pool of threads would run out.
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_BYTES), ("grpc.max_send_message_length", MAX_BYTES)])
    plugin_pb2_grpc.add_PluginServicer_to_server(plugin, server)
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": unary(check)}),
            grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": unary(shutdown)}),
        ]
    )
    path = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "plugin.sock")
    server.add_insecure_port("unix:" + path)
    await server.start()
    print(f"1|1|unix|{path}|grpc", flush=True)  # the handshake: stdout is for nothing else

    parent = os.getppid()
    while not over.is_set() and os.getppid() == parent:  # a Gatekit that was killed cannot ask
        try:
            await asyncio.wait_for(over.wait(), 1)
        except asyncio.TimeoutError:
            pass
    await server.stop(None)


def main(description, stage):
    if os.environ.get("GATEKIT_PLUGIN") != "gatekit.plugin.v1":
        sys.exit(f"This is the plugin {description.name!r}, which Gatekit starts: name it in a gatekit.toml.")
    asyncio.run(serve(Plugin(description, stage)))
