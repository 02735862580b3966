/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * I/O engine of fio for Zonal's devices.
 *
 * Translates between fio's structures and the functions of zonal_fio.h, and decides nothing else. A job has a lane of
 * requests to each of its devices; jobs are threads of one process and share the devices.
 *
 * The order of calls is fio's: setup() for every job in turn, on fio's main thread; the questions about zones, there too
 * or on a job's thread; then init(), requests and cleanup() on the job's own thread.
 */
#include <errno.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fio.h"
#include "optgroup.h"
#include "smalloc.h"
#include "zbd.h"

#include "zonal_fio.h"

/* The release whose headers this was compiled with: structures differ between releases that share FIO_IOOPS_VERSION. */
#ifndef ZONAL_FIO_VERSION
#error "ZONAL_FIO_VERSION is not set; see scripts/fio-engine.sh"
#endif

#define EXPORTED __attribute__((visibility("default")))

struct options {
	void *pad; /* fio takes an offset of 0 for none */
	char *device;
	char *write_mode;
	char *volume_options;
	unsigned int yes;
};

/* A file of a job. Hangs at the file as its engine data. */
struct target {
	const struct zonal_fio_lane *lane;
	struct zonal_fio_device *device;
};

struct job {
	struct zonal_fio_job *job;
	struct zonal_fio_event *events;
	unsigned int nr_targets;
	struct target targets[];
};

static struct fio_option options[] = {
	{
		.name = "device",
		.lname = "Zonal device",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options, device),
		.help = "Name of a Zonal device, such as image:PATH or null:size=64G; without it, filename is the name",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "write_mode",
		.lname = "Zonal write mode",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options, write_mode),
		.help = "direct, zone-lock, per-zone, qd1, pipelined or append; without it, what suits the device",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "volume_options",
		.lname = "Zonal volume options",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options, volume_options),
		.help = "Options of the write path, as in window=16 merge=no; see docs/FIO.md",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "yes",
		.lname = "Overwrite the device",
		.type = FIO_OPT_BOOL,
		.off1 = offsetof(struct options, yes),
		.def = "0",
		.help = "Write although there is a file system or a partition table on the device, which is lost",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = NULL,
	},
};

static struct ioengine_ops engine;

/* The process that loaded the engine. */
static pid_t loader;

static struct target *target_of(const struct fio_file *f)
{
	return FILE_ENG_DATA(f);
}

/* The name under which fio knows the file: jobs share what they know about zones by it. */
static int rename_file(struct fio_file *f, const char *name)
{
	char *copy = fio_file_smalloc(f) ? smalloc_strdup(name) : strdup(name);

	if (!copy)
		return 1;
	if (fio_file_smalloc(f))
		sfree(f->file_name);
	else
		free(f->file_name);
	f->file_name = copy;
	return 0;
}

static int setup_file(struct thread_data *td, struct fio_file *f, struct target *target)
{
	const struct options *o = td->eo;
	char message[1024];

	if (o->device && rename_file(f, o->device))
		return 1;
	target->device = zonal_fio_open(f->file_name, o->write_mode, o->volume_options, message,
					sizeof(message));
	if (!target->device) {
		log_err("zonal: %s: %s\n", td->o.name, message);
		td_verror(td, ENODEV, "zonal_open");
		return 1;
	}
	if ((td_write(td) || td_trim(td)) && !o->yes && zonal_fio_check(target->device, message, sizeof(message))) {
		log_err("zonal: %s: %s; yes=1 overwrites it\n", td->o.name, message);
		td_verror(td, EBUSY, "zonal_check");
		return 1;
	}
	f->filetype = FIO_TYPE_BLOCK;
	f->real_file_size = zonal_fio_info(target->device).size;
	fio_file_set_size_known(f);
	FILE_SET_ENG_DATA(f, target);
	return 0;
}

static void zonal_cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	if (!job)
		return;
	td->io_ops_data = NULL;
	/* Waits for what is under way, so before anything that is needed for that. */
	if (job->job)
		zonal_fio_job_free(job->job);
	for (unsigned int i = 0; i < job->nr_targets; i++)
		if (job->targets[i].device)
			zonal_fio_close(job->targets[i].device);
	free(job->events);
	free(job);
}

static int refuse(struct thread_data *td, const char *why)
{
	log_err("zonal: %s: %s\n", td->o.name, why);
	td_verror(td, EINVAL, "zonal_setup");
	return 1;
}

/* Opens the job's devices, once: fio calls init() before setup() where each job sets itself up. */
static int prepare(struct thread_data *td)
{
	const struct options *o = td->eo;
	struct fio_file *f;
	struct job *job;
	unsigned int i;

	if (td->io_ops_data)
		return 0;
	/* Jobs share volumes, so they have to be threads; and a volume has no page cache. */
	if (getpid() != loader)
		return refuse(td, "create_serialize=0 needs thread=1");
	td->o.use_thread = 1;
	td->o.odirect = 1;
	if (o->device && td->o.nr_files != 1)
		return refuse(td, "device= is one device; filename= takes several, with \\: for each colon");

	job = calloc(1, sizeof(*job) + td->o.nr_files * sizeof(struct target));
	if (!job)
		return 1;
	job->nr_targets = td->o.nr_files;
	td->io_ops_data = job;
	for_each_file(td, f, i) {
		if (setup_file(td, f, &job->targets[i])) {
			zonal_cleanup(td);
			return 1;
		}
	}
	return 0;
}

static int zonal_setup(struct thread_data *td)
{
	return prepare(td);
}

static int zonal_init(struct thread_data *td)
{
	struct job *job;

	if (prepare(td))
		return 1;
	job = td->io_ops_data;
	job->events = calloc(td->o.iodepth, sizeof(*job->events));
	if (!job->events)
		return 1;
	job->job = zonal_fio_job_new(td->o.iodepth);
	for (unsigned int i = 0; i < job->nr_targets; i++)
		job->targets[i].lane = zonal_fio_lane_new(job->job, job->targets[i].device);
	return 0;
}

/* fio knows which zones have data; in a conventional zone there is nothing to discard. */
static enum fio_q_status trim(struct thread_data *td, struct io_u *io_u)
{
	int ret = td->o.zone_mode == ZONE_MODE_ZBD ? zbd_do_io_u_trim(td, io_u) : 0;

	if (ret < 0)
		io_u->error = -ret;
	else if (ret != io_u_completed)
		io_u->error = EOPNOTSUPP;
	return FIO_Q_COMPLETED;
}

static enum fio_q_status zonal_queue(struct thread_data *td, struct io_u *io_u)
{
	int op, ret;

	fio_ro_check(td, io_u);
	if (io_u->ddir == DDIR_WRITE)
		op = ZONAL_FIO_WRITE;
	else if (io_u->ddir == DDIR_READ)
		op = ZONAL_FIO_READ;
	else if (ddir_sync(io_u->ddir))
		op = ZONAL_FIO_FLUSH;
	else
		return trim(td, io_u);

	/* Before and not after as fio would: the request may be over when the call returns. */
	if (fio_fill_issue_time(td)) {
		fio_gettime(&io_u->issue_time, NULL);
		if (td->o.read_iolog_file)
			memcpy(&td->last_issue, &io_u->issue_time, sizeof(io_u->issue_time));
	}
	ret = zonal_fio_queue(target_of(io_u->file)->lane, op, io_u->offset, io_u->xfer_buf, io_u->xfer_buflen,
			      (uintptr_t)io_u);
	if (ret == ZONAL_FIO_QUEUED) {
		io_u_queued(td, io_u);
		return FIO_Q_QUEUED;
	}
	if (ret) {
		io_u->error = -ret;
		io_u->resid = io_u->xfer_buflen;
	}
	return FIO_Q_COMPLETED;
}

static int zonal_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct job *job = td->io_ops_data;
	uint64_t timeout = t ? t->tv_sec * 1000000000ULL + t->tv_nsec : UINT64_MAX;

	if (max > td->o.iodepth)
		max = td->o.iodepth;
	return zonal_fio_events(job->job, min, max, timeout, job->events);
}

static struct io_u *zonal_event(struct thread_data *td, int n)
{
	const struct job *job = td->io_ops_data;
	const struct zonal_fio_event *event = &job->events[n];
	struct io_u *io_u = (struct io_u *)(uintptr_t)event->token;

	if (event->error) {
		io_u->error = event->error;
		io_u->resid = io_u->xfer_buflen;
	}
	return io_u;
}

static int zonal_open_file(struct thread_data *td, struct fio_file *f)
{
	return target_of(f) == NULL;
}

static int zonal_close_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int zonal_get_zoned_model(struct thread_data *td, struct fio_file *f, enum zbd_zoned_model *model)
{
	*model = ZBD_HOST_MANAGED;
	return 0;
}

/* fio prints errno, not what it is told. */
static int told(int ret)
{
	if (ret < 0)
		errno = -ret;
	return ret;
}

static int zonal_report_zones(struct thread_data *td, struct fio_file *f, uint64_t offset, struct zbd_zone *zones,
			      unsigned int nr_zones)
{
	struct zonal_fio_zone *found = calloc(nr_zones, sizeof(*found));
	int ret;

	if (!found)
		return told(-ENOMEM);
	ret = zonal_fio_report(target_of(f)->device, offset, found, nr_zones);
	for (int i = 0; i < ret; i++) {
		zones[i].start = found[i].start;
		zones[i].wp = found[i].write_pointer;
		zones[i].len = found[i].size;
		zones[i].capacity = found[i].capacity;
		zones[i].type = found[i].kind;
		zones[i].cond = found[i].condition;
	}
	free(found);
	return told(ret);
}

static int zonal_reset_wp(struct thread_data *td, struct fio_file *f, uint64_t offset, uint64_t length)
{
	return told(zonal_fio_reset(target_of(f)->device, offset, length));
}

static int zonal_get_max_open_zones(struct thread_data *td, struct fio_file *f, unsigned int *max_open_zones)
{
	*max_open_zones = zonal_fio_info(target_of(f)->device).open_max;
	return 0;
}

static int zonal_get_file_size(struct thread_data *td, struct fio_file *f)
{
	return target_of(f) == NULL;
}

static struct ioengine_ops engine = {
	.name = "zonal",
	.version = FIO_IOOPS_VERSION,
	/* No file of the kernel's behind it; issue times are set in queue(); trims end there; one thread a job. */
	.flags = FIO_DISKLESSIO | FIO_NODISKUTIL | FIO_NOEXTEND | FIO_RAWIO | FIO_MEMALIGN |
		 FIO_ASYNCIO_SETS_ISSUE_TIME | FIO_ASYNCIO_SYNC_TRIM | FIO_NO_OFFLOAD,
	.setup = zonal_setup,
	.init = zonal_init,
	.queue = zonal_queue,
	.getevents = zonal_getevents,
	.event = zonal_event,
	.cleanup = zonal_cleanup,
	.open_file = zonal_open_file,
	.close_file = zonal_close_file,
	.get_file_size = zonal_get_file_size,
	.get_zoned_model = zonal_get_zoned_model,
	.report_zones = zonal_report_zones,
	.reset_wp = zonal_reset_wp,
	.get_max_open_zones = zonal_get_max_open_zones,
	.option_struct_size = sizeof(struct options),
	.options = options,
};

/*
 * How fio finds the engine: a function and not a variable, so that nothing of fio's structures is touched by a fio that
 * has others.
 */
EXPORTED void get_ioengine(struct ioengine_ops **ops);

void get_ioengine(struct ioengine_ops **ops)
{
	const char *version = dlsym(RTLD_DEFAULT, "fio_version_string");

	if (!version || strcmp(version, ZONAL_FIO_VERSION)) {
		fprintf(stderr, "zonal: this engine was built for %s and cannot run in %s; see docs/FIO.md\n",
			ZONAL_FIO_VERSION, version ? version : "a program that does not say its version");
		return;
	}
	loader = getpid();
	*ops = &engine;
}
