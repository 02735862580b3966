//! The log: around its zones, full, damaged, with zones that fail.
