//! Zoned devices and the write path: device trait, emulated drives, volume.
