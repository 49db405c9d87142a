// Serves one plugin: the handshake of hashicorp/go-plugin, and the service of plugin.proto. Nothing
// here depends on what the plugin inspects.

import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { fileURLToPath } from "node:url";

import type { Canary } from "./gen/gatekit/plugin/v1/Canary.js";
import type { Description } from "./gen/gatekit/plugin/v1/Description.js";
import type { InspectRequest__Output as InspectRequest } from "./gen/gatekit/plugin/v1/InspectRequest.js";
import type { Message__Output as Message } from "./gen/gatekit/plugin/v1/Message.js";
import type { Needs } from "./gen/gatekit/plugin/v1/Needs.js";
import type { PluginHandlers } from "./gen/gatekit/plugin/v1/Plugin.js";
import type { Verdict } from "./gen/gatekit/plugin/v1/Verdict.js";
import type { Wants } from "./gen/gatekit/plugin/v1/Wants.js";
import type { ProtoGrpcType } from "./gen/plugin.js";

// Stage is the plugin with one configuration.
export type Stage = { wants: Wants; needs: Needs; canary?: Canary; inspect(message: Message): Verdict };

// The limit that Gatekit has for its own side. gRPC's default of 4 MiB would reject large MCP
// messages, and Gatekit would deny them.
const maxBytes = 256 << 20;

// main serves one plugin until Gatekit ends the process. newStage returns the stage for a
// configuration.
export function main(description: Description, newStage: (config: any) => Stage): void {
  if (process.env.GATEKIT_PLUGIN !== "gatekit.plugin.v1") {
    console.error(`This is the plugin "${description.name}", which Gatekit starts: name it in a gatekit.toml.`);
    process.exit(1);
  }
  const proto = loadSync(fileURLToPath(new URL("../plugin.proto", import.meta.url)), { longs: String, enums: String, defaults: true });
  const { gatekit } = grpc.loadPackageDefinition(proto) as unknown as ProtoGrpcType;
  const server = new grpc.Server({ "grpc.max_receive_message_length": maxBytes, "grpc.max_send_message_length": maxBytes });
  server.addService(gatekit.plugin.v1.Plugin.service, service(description, newStage));
  server.addService(unary("/grpc.health.v1.Health/Check"), { call: respondWith(Buffer.from([8, 1])) }); // HealthCheckResponse{status: SERVING}
  server.addService(unary("/plugin.GRPCController/Shutdown"), { call: () => process.exit(0) });

  const address = `unix:${process.env.PLUGIN_UNIX_SOCKET_DIR}/plugin.sock`;
  server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (err) => {
    if (err) throw err;
    console.log(`1|1|unix|${address.slice("unix:".length)}|grpc`); // the handshake; nothing else may go to stdout
  });
  const parent = process.ppid;
  setInterval(() => process.ppid === parent || process.exit(1), 1000); // a killed Gatekit sends no Shutdown
}

function service(description: Description, newStage: (config: any) => Stage): PluginHandlers {
  const stages = new Map<number, Stage>();
  let lastID = 0;
  // verdict returns the verdict of the stage. If the stage fails, on_error in gatekit.toml decides.
  const verdict = (request: InspectRequest): Verdict => {
    // Gatekit sends several stages in one request only to its own plugins.
    const stage = request.stages.length === 1 && stages.get(request.stages[0]!);
    if (!stage || !request.message) return { error: "the request has no message or no known stage" };
    try {
      return stage.inspect(request.message);
    } catch (e) {
      // Not e.message, which may hold a part of the message.
      return { error: `${e instanceof Error ? e.name : "error"} while inspecting` };
    }
  };
  return {
    Describe: (_, callback) => callback(null, { plugins: [description] }),
    Configure: (call, callback) => {
      try {
        const { wants, needs, canary } = stages.set(++lastID, newStage(JSON.parse(call.request.config.toString()))).get(lastID)!;
        callback(null, { stage: lastID, wants, needs, canary });
      } catch (e) {
        callback({ code: grpc.status.INVALID_ARGUMENT, details: String(e) });
      }
    },
    Inspect: (stream) => {
      stream.on("data", (request: InspectRequest) => stream.write({ seq: request.seq, verdicts: [verdict(request)] }));
      stream.on("end", () => stream.end());
      stream.on("error", () => {}); // Gatekit cancelled the request
    },
    Close: (call, callback) => {
      stages.delete(call.request.stage);
      callback(null, {});
    },
  };
}

// unary returns a service with one method. The messages of this method are written as bytes.
function unary(path: string): grpc.ServiceDefinition {
  const same = (b: Buffer) => b;
  return { call: { path, requestStream: false, responseStream: false, requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same } };
}

// respondWith returns a handler that always responds with these bytes.
function respondWith(bytes: Buffer): grpc.handleUnaryCall<Buffer, Buffer> {
  return (_, callback) => callback(null, bytes);
}
