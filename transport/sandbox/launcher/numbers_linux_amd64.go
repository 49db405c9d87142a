package launcher

const sysSeccomp = 317
