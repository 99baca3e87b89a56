// SPDX-License-Identifier: GPL-2.0
/*
 * Takes a branch snapshot wherever one of these programs is attached. Each object
 * has one that takes snapshots, and at most one that notes when a function begins.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "record.h"

/* Of a filter. */
#define MAX_STEPS 64
/* Of cgroups, from the root to that of a task: deeper ones are not looked at. */
#define MAX_CGROUPS 16
/* Of calls of a function in itself, whose beginnings are noted. */
#define MAX_DEPTH 8
/* Of each stack. */
#define MAX_FRAMES 64
/* Of a function. */
#define MAX_ARGUMENTS 12
/* Of what arguments point to. */
#define MAX_READS 32
/* Bytes of one read. */
#define MAX_READ 512
/* Bytes for arguments and for what was read. */
#define MAX_DATA 2048
/* Of arguments, that a filter compares: a power of two. */
#define MAX_VALUES 8

struct event {
	/* What the helper returned: bytes written, or a negative error. */
	__s64 taken;
	__u64 time;
	/* Nanoseconds since the function began; 0 if that was not noted. */
	__u64 duration;
	/* What the function returned, by its type. */
	__u64 returned;
	__u32 target;
	__u32 cpu;
	__u32 pid;
	__u32 tid;
	__u64 comm[2];
	struct record records[MAX_RECORDS];
	/* Bytes of the stacks that follow; negative errors; 0 if nobody asked. */
	__s32 kernel_size;
	__s32 user_size;
	__u64 kernel_stack[MAX_FRAMES];
	__u64 user_stack[MAX_FRAMES];
	/* A bit for each read that failed. */
	__u64 unread;
	/* The arguments, a word each, and behind them what was read. */
	__u64 data[MAX_DATA / sizeof(__u64)];
};

/* What the type of a return value is. */
enum class {
	NONE,
	SIGNED,
	UNSIGNED,
	POINTER,
};

struct target {
	__u8 class;
	/* 64 less the bits of the value. */
	__u8 shift;
	__u16 unused[3];
};

/* A step of a filter, in postfix order. */
enum op {
	/* Compare a field with a value: push. */
	EQUAL,
	LESS,
	LESS_EQUAL,
	/* Of what was pushed. */
	AND,
	OR,
	NOT,
};

enum field {
	PID,
	TID,
	CPU,
	COMM,
	CGROUP,
	DURATION,
	RETURNED,
	FAILED,
	/* The first of the values. */
	ARGUMENT,
};

struct step {
	__u8 op;
	__u8 field;
	__u16 unused[3];
	/* Of the field's words, the bits that count. */
	__u64 mask[2];
	__u64 value[2];
};

/* A read of memory: the pointer to it is in the data. */
struct read {
	__u32 offset;
	__u16 from;
	__u16 to;
	__u16 size;
	__u8 is_text;
	__u8 unused;
};

/* A number in the data that a filter compares, and the shifts that leave it alone. */
struct value {
	__u16 at;
	__u8 left;
	__u8 right;
	__u8 is_signed;
	__u8 unused[3];
};

/* Set before it is loaded. */
const volatile struct read reads[MAX_READS];
const volatile struct value values[MAX_VALUES];
const volatile __u32 read_count;
const volatile __u32 argument_count;
/* Whether events have the arguments. */
const volatile _Bool with_arguments;
const volatile struct step steps[MAX_STEPS];
const volatile __u32 step_count;
/* One less than the slots there are: a power of two. */
const volatile __u32 slot_mask;
const volatile __u32 target_count;
/* The first target of this object. */
const volatile __u32 first_target;
/* The tracer itself, which is not traced. */
const volatile __u32 tracer;
/* Whether functions' beginnings are noted. */
const volatile _Bool timed;
/* Which stacks are taken. */
const volatile _Bool kernel_stacks;
const volatile _Bool user_stacks;

/* Events that found no room in the ring buffer. */
__u64 dropped;
/* Calls whose beginning found no room. */
__u64 untimed;

/* Both are as long as user space makes them. */
struct target targets[1] SEC(".data.targets");
/*
 * One for each CPU and not a per-CPU map: an index into an array needs no branch,
 * and each branch before the snapshot costs a record. The slot is this invocation's
 * own: migration is disabled, and no program here interrupts itself.
 */
struct event slots[1] SEC(".data.slots");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
} events SEC(".maps");

/* Where a function began: in a thread, or on a CPU that is idle. */
struct begun {
	__u32 thread;
	__u32 target;
};

/* The calls of it that have not ended: one may be in another. */
struct starts {
	__u32 depth;
	__u32 unused;
	__u64 times[MAX_DEPTH];
};

/* User space makes room. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct begun);
	__type(value, struct starts);
} starts SEC(".maps");

static __always_inline struct event *slot(void)
{
	/* No branch: every JIT with a snapshot inlines this. */
	return &slots[bpf_get_smp_processor_id() & slot_mask];
}

/* Before anything is decided: all that could branch would push out a record. */
#define TAKE(event)								\
	((event)->taken = bpf_get_branch_snapshot((event)->records,		\
						  sizeof((event)->records), 0))

static __always_inline _Bool failed(const struct target *target, __u64 value)
{
	switch (target->class) {
	case SIGNED:
	case POINTER:
		return value >= (__u64)-4095;
	default:
		return 0;
	}
}

/* A number of an argument. What could not be read counts as 0. */
static __always_inline __u64 argument(const struct event *event, __u32 number)
{
	const volatile struct value *value = &values[number & (MAX_VALUES - 1)];
	__u32 at = value->at / sizeof(__u64);
	__u64 word;

	if (at >= MAX_DATA / sizeof(__u64))
		return 0;
	word = event->data[at] << (value->left & 63);
	if (value->is_signed)
		return (__s64)word >> (value->right & 63);
	return word >> (value->right & 63);
}

/* Whether the task is in the cgroup of this id, or in one below it. */
static __always_inline _Bool is_below(__u64 cgroup)
{
	__u32 level;

	for (level = 0; level < MAX_CGROUPS; level++) {
		__u64 id = bpf_get_current_ancestor_cgroup_id(level);

		if (!id)
			break;
		if (id == cgroup)
			return 1;
	}
	return 0;
}

static __always_inline __u64 field(const struct event *event, const struct target *target,
				   __u8 field)
{
	switch (field) {
	case PID:
		return event->pid;
	case TID:
		return event->tid;
	case CPU:
		return event->cpu;
	case COMM:
		return event->comm[0];
	case DURATION:
		return event->duration;
	case RETURNED:
		return event->returned;
	case FAILED:
		return failed(target, event->returned);
	default:
		return argument(event, field - ARGUMENT);
	}
}

/* Whether the filter lets the event pass. */
static __always_inline _Bool passes(const struct event *event, const struct target *target)
{
	/* The results that are pushed, the last one in bit 0. */
	__u64 stack = 1;
	__u32 i;

	for (i = 0; i < MAX_STEPS; i++) {
		const volatile struct step *step = &steps[i];
		__u64 first, second;
		_Bool holds;

		if (i >= step_count)
			break;
		switch (step->op) {
		case AND:
			stack = (stack >> 2 << 1) | ((stack & 3) == 3);
			continue;
		case OR:
			stack = (stack >> 2 << 1) | ((stack & 3) != 0);
			continue;
		case NOT:
			stack ^= 1;
			continue;
		}
		if (step->field == CGROUP) {
			stack = stack << 1 | is_below(step->value[0]);
			continue;
		}
		/* What was not noted is neither long nor short. */
		if (step->field == DURATION && !event->duration) {
			stack <<= 1;
			continue;
		}
		first = field(event, target, step->field) & step->mask[0];
		switch (step->op) {
		case LESS:
			holds = (__s64)first < (__s64)step->value[0];
			break;
		case LESS_EQUAL:
			holds = (__s64)first <= (__s64)step->value[0];
			break;
		default:
			second = event->comm[1] & step->mask[1];
			holds = first == step->value[0] && second == step->value[1];
		}
		stack = stack << 1 | holds;
	}
	return stack & 1;
}

/*
 * Reads the arguments that a trampoline saved, and what they point to. An address of user space
 * is read as one: not all kernels' types say which pointers those are.
 */
static __always_inline void read_arguments(void *ctx, struct event *event)
{
	__u32 i;

	event->unread = 0;
	for (i = 0; i < MAX_ARGUMENTS; i++) {
		if (i >= argument_count)
			break;
		bpf_get_func_arg(ctx, i, &event->data[i]);
	}
	for (i = 0; i < MAX_READS; i++) {
		__u32 from = reads[i].from / sizeof(__u64), to = reads[i].to, size = reads[i].size;
		void *data = event->data, *address;
		long error;

		if (i >= read_count)
			break;
		if (from >= MAX_DATA / sizeof(__u64) || to > MAX_DATA - MAX_READ || size > MAX_READ)
			break;
		address = (void *)(event->data[from] + reads[i].offset);
		if ((__s64)address < 0 && reads[i].is_text)
			error = bpf_probe_read_kernel_str(data + to, size, address);
		else if ((__s64)address < 0)
			error = bpf_probe_read_kernel(data + to, size, address);
		else if (reads[i].is_text)
			error = bpf_probe_read_user_str(data + to, size, address);
		else
			error = bpf_probe_read_user(data + to, size, address);
		if (error < 0)
			event->unread |= 1ULL << i;
	}
}

static __always_inline struct begun begun(__u32 target)
{
	__u32 tid = bpf_get_current_pid_tgid();

	/* All idle threads have the number 0. No thread has one that is negative. */
	return (struct begun) {
		.thread = tid ? tid : ~bpf_get_smp_processor_id(),
		.target = target,
	};
}

/* How long the call took that ends now; 0 if its beginning was not noted. */
static __always_inline __u64 duration(__u64 now, __u32 target)
{
	struct begun key = begun(target);
	struct starts *calls = bpf_map_lookup_elem(&starts, &key);
	__u64 time = 0;
	__u32 depth;

	if (!calls)
		return 0;
	depth = calls->depth - 1;
	if (depth < MAX_DEPTH)
		time = now - calls->times[depth];
	if (depth)
		calls->depth = depth;
	else
		bpf_map_delete_elem(&starts, &key);
	return time;
}

/* What is in the slot, or reserved: fills in the rest. Whether it is wanted. */
static __always_inline _Bool complete(struct event *event, __u32 index, __u64 returned)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct target *target;

	event->time = bpf_ktime_get_ns();
	event->pid = id >> 32;
	event->tid = id;
	if (event->pid == tracer || index >= target_count)
		return 0;
	target = &targets[index];
	event->target = first_target + index;
	event->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	returned <<= target->shift;
	if (target->class == SIGNED)
		event->returned = (__s64)returned >> target->shift;
	else
		event->returned = returned >> target->shift;
	event->duration = timed ? duration(event->time, event->target) : 0;
	return passes(event, target);
}

/* The stacks are those of the moment: nothing returns in between. */
static __always_inline void add_stacks(void *ctx, struct event *event)
{
	event->kernel_size = 0;
	event->user_size = 0;
	if (kernel_stacks)
		event->kernel_size = bpf_get_stack(ctx, event->kernel_stack,
						   sizeof(event->kernel_stack), 0);
	if (user_stacks)
		event->user_size = bpf_get_stack(ctx, event->user_stack,
						 sizeof(event->user_stack), BPF_F_USER_STACK);
}

/* Hands over what is in the slot, without the records that there are not. */
static __always_inline int hand_over(void *ctx, struct event *event, __u32 index, __u64 returned)
{
	__s64 size = event->taken;

	if (!complete(event, index, returned))
		return 0;
	if (kernel_stacks || user_stacks || with_arguments) {
		size = with_arguments ? sizeof(*event) : __builtin_offsetof(struct event, unread);
		add_stacks(ctx, event);
		if (bpf_ringbuf_output(&events, event, size, 0))
			__sync_fetch_and_add(&dropped, 1);
		return 0;
	}
	if (size < 0)
		size = 0;
	if (size > sizeof(event->records))
		size = sizeof(event->records);
	size += __builtin_offsetof(struct event, records);
	if (bpf_ringbuf_output(&events, event, size, 0))
		__sync_fetch_and_add(&dropped, 1);
	return 0;
}

/* A thread that ended in a call leaves it here: what begins later is noted on top of it. */
static __always_inline int begin(__u32 index)
{
	struct begun key = begun(first_target + index);
	struct starts first = { .depth = 1 }, *calls;
	__u64 now = bpf_ktime_get_ns();
	__u32 depth;

	if ((__u32)(bpf_get_current_pid_tgid() >> 32) == tracer)
		return 0;
	calls = bpf_map_lookup_elem(&starts, &key);
	if (!calls) {
		first.times[0] = now;
		if (bpf_map_update_elem(&starts, &key, &first, BPF_ANY))
			__sync_fetch_and_add(&untimed, 1);
		return 0;
	}
	depth = calls->depth;
	if (depth < MAX_DEPTH)
		calls->times[depth] = now;
	calls->depth = depth + 1;
	return 0;
}

SEC("fentry")
int on_entry(void *ctx)
{
	struct event *event = slot();

	TAKE(event);
	read_arguments(ctx, event);
	return hand_over(ctx, event, 0, 0);
}

SEC("fexit")
int on_exit(void *ctx)
{
	struct event *event = slot();
	__u64 returned = 0;

	TAKE(event);
	/* Of a function that returns nothing: an error. */
	bpf_get_func_ret(ctx, &returned);
	read_arguments(ctx, event);
	return hand_over(ctx, event, 0, returned);
}

SEC("fentry")
int on_begin(void *ctx)
{
	return begin(0);
}

/* The cookie is the number of the function. */
SEC("kprobe.multi")
int on_entries(struct pt_regs *ctx)
{
	struct event *event = slot();

	TAKE(event);
	return hand_over(ctx, event, bpf_get_attach_cookie(ctx), 0);
}

SEC("kretprobe.multi")
int on_exits(struct pt_regs *ctx)
{
	struct event *event = slot();

	TAKE(event);
	return hand_over(ctx, event, bpf_get_attach_cookie(ctx), PT_REGS_RC(ctx));
}

SEC("kprobe.multi")
int on_begins(struct pt_regs *ctx)
{
	return begin(bpf_get_attach_cookie(ctx));
}

SEC("tracepoint")
int on_tracepoint(void *ctx)
{
	struct event *event = slot();

	TAKE(event);
	return hand_over(ctx, event, 0, 0);
}

SEC("raw_tracepoint")
int on_raw_tracepoint(void *ctx)
{
	struct event *event = slot();

	TAKE(event);
	return hand_over(ctx, event, 0, 0);
}

/*
 * Another task can come to the same place on the same CPU while this one is there:
 * these need memory of their own. What it costs to get it is the kernel's branches,
 * which nobody asks for who traces user space.
 */
static __always_inline int take_reserved(void *ctx, __u64 returned)
{
	_Bool stacks = kernel_stacks || user_stacks;
	struct event *event;

	/* A size that the verifier knows: without what nobody asked for. */
	if (stacks)
		event = bpf_ringbuf_reserve(&events, __builtin_offsetof(struct event, unread), 0);
	else
		event = bpf_ringbuf_reserve(&events, __builtin_offsetof(struct event, kernel_size), 0);
	if (!event) {
		__sync_fetch_and_add(&dropped, 1);
		/* The call ends all the same. */
		if (timed)
			duration(0, first_target);
		return 0;
	}
	TAKE(event);
	if (!complete(event, 0, returned)) {
		bpf_ringbuf_discard(event, 0);
		return 0;
	}
	if (stacks)
		add_stacks(ctx, event);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("uprobe")
int on_user_entry(struct pt_regs *ctx)
{
	return take_reserved(ctx, 0);
}

SEC("uretprobe")
int on_user_exit(struct pt_regs *ctx)
{
	return take_reserved(ctx, PT_REGS_RC(ctx));
}

SEC("uprobe")
int on_user_begin(struct pt_regs *ctx)
{
	return begin(0);
}

char LICENSE[] SEC("license") = "GPL";
