//! Pure model of zoned storage: units, geometry, zone states, write plugs.
