/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the library zonal-fio offers to an I/O engine. crates/zonal-fio/src/lib.rs has the same in Rust, and says what
 * each function promises and asks for; whoever changes one changes both.
 */
#ifndef ZONAL_FIO_H
#define ZONAL_FIO_H

#include <stddef.h>
#include <stdint.h>

struct zonal_fio_device;
struct zonal_fio_job;
struct zonal_fio_lane;

struct zonal_fio_info {
	uint64_t size;
	uint32_t block_size;
	uint32_t open_max;
};

struct zonal_fio_zone {
	uint64_t start;
	uint64_t write_pointer;
	uint64_t size;
	uint64_t capacity;
	uint32_t kind;
	uint32_t condition;
};

struct zonal_fio_event {
	uint64_t token;
	int32_t error;
	int32_t reserved;
};

_Static_assert(sizeof(struct zonal_fio_info) == 16, "as in Rust");
_Static_assert(sizeof(struct zonal_fio_zone) == 40, "as in Rust");
_Static_assert(sizeof(struct zonal_fio_event) == 16, "as in Rust");

enum { ZONAL_FIO_READ = 0, ZONAL_FIO_WRITE = 1, ZONAL_FIO_FLUSH = 2 };

/* zonal_fio_queue(): the request will end with an event. */
enum { ZONAL_FIO_QUEUED = 1 };

struct zonal_fio_device *zonal_fio_open(const char *name, const char *mode, const char *options, char *message,
					size_t message_len);
int zonal_fio_check(const struct zonal_fio_device *device, char *message, size_t message_len);
void zonal_fio_close(struct zonal_fio_device *device);
struct zonal_fio_info zonal_fio_info(const struct zonal_fio_device *device);
int zonal_fio_report(const struct zonal_fio_device *device, uint64_t offset, struct zonal_fio_zone *zones,
		     uint32_t max);
int zonal_fio_reset(const struct zonal_fio_device *device, uint64_t offset, uint64_t length);

struct zonal_fio_job *zonal_fio_job_new(uint32_t depth);
void zonal_fio_job_free(struct zonal_fio_job *job);
const struct zonal_fio_lane *zonal_fio_lane_new(struct zonal_fio_job *job, const struct zonal_fio_device *device);
int zonal_fio_queue(const struct zonal_fio_lane *lane, int op, uint64_t offset, void *data, uint64_t len,
		    uint64_t token);
int zonal_fio_events(struct zonal_fio_job *job, uint32_t min, uint32_t max, uint64_t timeout,
		     struct zonal_fio_event *events);

#endif
