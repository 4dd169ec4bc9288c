//go:build linux

package verbs

import (
	"maps"
	"slices"
)

// struct ibv_context of infiniband/verbs.h, the same in rdma-core 33 to 65.
const (
	cmdFD       = 264 // int, the open device
	abiCompat   = 320 // void *, ~0 unless a program was linked with a library from before 2008
	contextSize = abiCompat + 8
)

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

var (
	qpObject = object{name: "ibv_wr_*", calls: qpCalls, has: wrStart, functions: 184, sure: qpCalls[wrAbort], size: 360}
	cqObject = object{name: "ibv_start_poll", calls: cqCalls, has: startPoll, functions: 144, sure: 280, size: 288}
	objects  = []object{qpObject, cqObject}
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
