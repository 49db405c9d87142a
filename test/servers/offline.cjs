// usage: node -r offline.cjs SERVER
//
// All host name lookups of the server fail, so that its requests to the Internet fail at once, in
// the same way on every machine.
const dns = require('node:dns');
const none = (host) => Object.assign(new Error('getaddrinfo ENOTFOUND ' + host), { code: 'ENOTFOUND', syscall: 'getaddrinfo', hostname: host });
dns.lookup = (host, options, callback) => process.nextTick(callback ?? options, none(host));
dns.promises.lookup = async (host) => { throw none(host); };
require('node:module').syncBuiltinESMExports();
