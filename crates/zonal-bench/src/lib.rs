//! Workloads in fio's job language, run through the write path and verified.
