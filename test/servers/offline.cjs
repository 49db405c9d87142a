// node -r offline.cjs SERVER: a server that finds no host, so that what it would do out there fails at once, the same on every machine.
const dns = require('node:dns');
const none = (host) => Object.assign(new Error('getaddrinfo ENOTFOUND ' + host), { code: 'ENOTFOUND', syscall: 'getaddrinfo', hostname: host });
dns.lookup = (host, options, callback) => process.nextTick(callback ?? options, none(host));
dns.promises.lookup = async (host) => { throw none(host); };
require('node:module').syncBuiltinESMExports();
