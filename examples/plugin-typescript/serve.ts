// What a plugin of Gatekit has to do beside judging, for one plugin in TypeScript: the handshake of hashicorp/go-plugin, and the service of plugin.proto. Nothing here is about what is
// judged.

import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { fileURLToPath } from "node:url";

import type { Canary } from "./gen/gatekit/plugin/v1/Canary.js";
import type { Description } from "./gen/gatekit/plugin/v1/Description.js";
import type { InspectRequest__Output as Question } from "./gen/gatekit/plugin/v1/InspectRequest.js";
import type { Message__Output as Message } from "./gen/gatekit/plugin/v1/Message.js";
import type { Needs } from "./gen/gatekit/plugin/v1/Needs.js";
import type { PluginHandlers } from "./gen/gatekit/plugin/v1/Plugin.js";
import type { Verdict } from "./gen/gatekit/plugin/v1/Verdict.js";
import type { Wants } from "./gen/gatekit/plugin/v1/Wants.js";
import type { ProtoGrpcType } from "./gen/plugin.js";

// Stage judges messages by one configuration.
export type Stage = { wants: Wants; needs: Needs; canary?: Canary; inspect(message: Message): Verdict };

const maxBytes = 256 << 20; // gRPC's 4 MiB would refuse large messages of MCP, which Gatekit then denies

// main serves one plugin, of which make makes stages, until Gatekit ends it.
export function main(description: Description, make: (config: any) => Stage): void {
  if (process.env.GATEKIT_PLUGIN !== "gatekit.plugin.v1") {
    console.error(`This is the plugin "${description.name}", which Gatekit starts: name it in a gatekit.toml.`);
    process.exit(1);
  }
  const proto = loadSync(fileURLToPath(new URL("../plugin.proto", import.meta.url)), { longs: String, enums: String, defaults: true });
  const { gatekit } = grpc.loadPackageDefinition(proto) as unknown as ProtoGrpcType;
  const server = new grpc.Server({ "grpc.max_receive_message_length": maxBytes, "grpc.max_send_message_length": maxBytes });
  server.addService(gatekit.plugin.v1.Plugin.service, service(description, make));
  server.addService(unary("/grpc.health.v1.Health/Check"), { call: answer(Buffer.from([8, 1])) }); // HealthCheckResponse{status: SERVING}
  server.addService(unary("/plugin.GRPCController/Shutdown"), { call: () => process.exit(0) });

  const address = `unix:${process.env.PLUGIN_UNIX_SOCKET_DIR}/plugin.sock`;
  server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (err) => {
    if (err) throw err;
    console.log(`1|1|unix|${address.slice("unix:".length)}|grpc`); // the handshake: stdout is for nothing else
  });
  const parent = process.ppid;
  setInterval(() => process.ppid === parent || process.exit(1), 1000); // a Gatekit that was killed cannot ask
}

function service(description: Description, make: (config: any) => Stage): PluginHandlers {
  const stages = new Map<number, Stage>();
  let last = 0;
  const ask = (question: Question): Verdict => {
    // Stages of one process may be asked in one question; Gatekit does so with its own only.
    const stage = question.stages.length === 1 && stages.get(question.stages[0]!);
    if (!stage || !question.message) return { error: "a question that cannot be answered" };
    try {
      return stage.inspect(question.message);
    } catch (e) {
      // on_error says what becomes of the message. Not e.message, which may hold some of it.
      return { error: `${e instanceof Error ? e.name : "error"} while inspecting` };
    }
  };
  return {
    Describe: (_, callback) => callback(null, { plugins: [description] }),
    Configure: (call, callback) => {
      try {
        const { wants, needs, canary } = stages.set(++last, make(JSON.parse(call.request.config.toString()))).get(last)!;
        callback(null, { stage: last, wants, needs, canary });
      } catch (e) {
        callback({ code: grpc.status.INVALID_ARGUMENT, details: String(e) });
      }
    },
    Inspect: (stream) => {
      stream.on("data", (question: Question) => stream.write({ seq: question.seq, verdicts: [ask(question)] }));
      stream.on("end", () => stream.end());
      stream.on("error", () => {}); // Gatekit gave the question up
    },
    Close: (call, callback) => {
      stages.delete(call.request.stage);
      callback(null, {});
    },
  };
}

// unary is a service of one method, whose messages are so small that they are written by hand: bytes in, bytes out.
function unary(path: string): grpc.ServiceDefinition {
  const same = (b: Buffer) => b;
  return { call: { path, requestStream: false, responseStream: false, requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same } };
}

function answer(bytes: Buffer): grpc.handleUnaryCall<Buffer, Buffer> {
  return (_, callback) => callback(null, bytes);
}
