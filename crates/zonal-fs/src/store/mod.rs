//! Rows: an ordered map from keys to values that survives any cut, over an embedded database.
