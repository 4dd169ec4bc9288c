package event

// Stack is a stack that an event refers to by its number.
type Stack struct {
	// PID is the process whose stack it is; 0: the kernel's.
	PID uint64 `json:"pid,omitempty"`
	// Addresses of the frames, innermost first, and the frames in their printed form.
	Addresses []uint64 `json:"addresses"`
	Frames    []string `json:"frames"`
}

// MaxFrames is the greatest number of frames that the kernel captures (kernel.perf_event_max_stack, unless an administrator changed it).
const MaxFrames = 127
