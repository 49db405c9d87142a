// usage: NODE_OPTIONS="-r clock.cjs" CLOCK_DAYS=40 node SERVER
//
// The server sees a clock that is CLOCK_DAYS days ahead. Programs that are not JavaScript do not.
const ahead = Number(process.env.CLOCK_DAYS || 0) * 24 * 60 * 60 * 1000;
if (ahead) {
  const now = Date.now;
  const shifted = () => now() + ahead;
  globalThis.Date = new Proxy(Date, {
    construct: (target, args, created) => Reflect.construct(target, args.length ? args : [shifted()], created),
    apply: (target) => new target(shifted()).toString(),
    get: (target, name) => (name === 'now' ? shifted : Reflect.get(target, name)),
  });
  Date.prototype.constructor = Date;
  const formats = Intl.DateTimeFormat.prototype;
  const format = Object.getOwnPropertyDescriptor(formats, 'format');
  Object.defineProperty(formats, 'format', {
    ...format,
    get() {
      const bound = format.get.call(this);
      return (date) => bound(date === undefined ? shifted() : date);
    },
  });
  const toParts = formats.formatToParts;
  formats.formatToParts = function (date) {
    return toParts.call(this, date === undefined ? shifted() : date);
  };
}
