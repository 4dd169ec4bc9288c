//go:build linux

package verbs

import (
	"maps"
	"runtime"
	"slices"
)

// struct ibv_context of infiniband/verbs.h, the same in rdma-core 33 to 65. The offsets in this file are those where a pthread_mutex_t has 40 bytes.
const (
	cmdFD     = 264 // int, the open device
	abiCompat = 320 // void *, ~0 unless a program was linked with a library from before 2008
)

// shifts are by how much later than that there may be what comes behind the mutex of a struct: with glibc on arm64 it has 48 bytes, with musl 40 as on
// amd64.
var shifts = map[string][]int{"amd64": {0}, "arm64": {0, 8}}[runtime.GOARCH]

// contextSize is how much of a context is read: to its end, wherever that is.
func contextSize() int { return abiCompat + 8 + slices.Max(shifts) }

// shiftOf returns by how much what is behind the mutex of a struct ibv_context is shifted. ok is false if it does not end as one does.
func shiftOf(context []byte) (shift int, ok bool) {
	for _, shift := range shifts {
		if pointer(context, abiCompat+shift) == ^uint64(0) {
			return shift, true
		}
	}
	return 0, false
}

// calls are the functions in struct ibv_context_ops of a context.
var calls = map[string]int{"poll_cq": 96, "post_srq_recv": 168, "post_send": 208, "post_recv": 216}

// qpCalls are the functions of a struct ibv_qp_ex, which ibv_wr_* calls. One that the QP does not have is NULL; a QP that was not made for
// them has none.
var qpCalls = map[string]int{
	"wr_atomic_cmp_swp": 184, "wr_atomic_fetch_add": 192, "wr_bind_mw": 200, "wr_local_inv": 208, "wr_rdma_read": 216, "wr_rdma_write": 224,
	"wr_rdma_write_imm": 232, "wr_send": 240, "wr_send_imm": 248, "wr_send_inv": 256, "wr_send_tso": 264, "wr_set_inline_data": 288,
	"wr_set_inline_data_list": 296, "wr_set_sge": 304, "wr_set_sge_list": 312, wrStart: 320, "wr_complete": 328, wrAbort: 336,
	"wr_atomic_write": 344, "wr_flush": 352,
}

// cqCalls are the functions of a struct ibv_cq_ex. One that the program did not ask for is NULL; a CQ that was made without extensions has none.
var cqCalls = map[string]int{
	startPoll: 144, "next_poll": 152, "end_poll": 160, "read_opcode": 168, "read_vendor_err": 176, "read_byte_len": 184, "read_imm_data": 192,
	"read_qp_num": 200, "read_src_qp": 208, "read_wc_flags": 216, readTicks: 248, "read_completion_wallclock_ns": 280,
}

const (
	startPoll = "start_poll"
	readTicks = "read_completion_ts"
)

// An object is a struct of libibverbs that has functions and begins with the address of its context.
type object struct {
	name  string // of its calls
	calls map[string]int
	// has is the function that each has that was made for these calls.
	has string
	// functions is where the first of them is, and sure the last that is one in all versions of the struct: behind it may be something else.
	functions, sure int
	size            int
}

// shifted returns an object that has so much more before its functions.
func (o object) shifted(by int) object {
	o.calls = maps.Clone(o.calls)
	for call := range o.calls {
		o.calls[call] += by
	}
	o.functions, o.sure, o.size = o.functions+by, o.sure+by, o.size+by
	return o
}

var (
	qpObject = object{name: "ibv_wr_*", calls: qpCalls, has: wrStart, functions: 184, sure: qpCalls[wrAbort], size: 360}
	cqObject = object{name: "ibv_start_poll", calls: cqCalls, has: startPoll, functions: 144, sure: 280, size: 288}
)

const (
	wrStart = "wr_start"
	wrAbort = "wr_abort"
	// sendCQ, recvCQ and qpNum, a uint32_t, are in struct ibv_qp.
	sendCQ, recvCQ, qpNum = 24, 32, 52
)

// struct ibv_device, the same: the names of the device and of its file.
const (
	deviceName     = 24
	deviceFile     = 88
	deviceNameSize = 64
)

// Calls are the names of the functions that can be followed.
func Calls() []string {
	return slices.Sorted(maps.Keys(calls))
}
