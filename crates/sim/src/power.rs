//! The power of a loop-mounted disk, cut by ioctl.
