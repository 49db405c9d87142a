// usage: GATEKIT_CONFORMANCE_TOKEN=TOKEN NODE_OPTIONS="--import ./bearer.mjs" node ...
//
// The suite's client for server scenarios has no setting for a token. This script adds the token to
// each HTTP request of the process. No proxy is needed, which could change the requests: some
// scenarios check the spelling of headers.
import { subscribe } from 'node:diagnostics_channel';
import http from 'node:http';
import { syncBuiltinESMExports } from 'node:module';

const value = 'Bearer ' + process.env.GATEKIT_CONFORMANCE_TOKEN;
// fetch, and the package undici
subscribe('undici:request:create', ({ request }) => request.addHeader('authorization', value));
const { request } = http;
http.request = (...args) => {
  const r = request(...args);
  r.setHeader('Authorization', value);
  return r;
};
syncBuiltinESMExports();
