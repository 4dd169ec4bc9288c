package event

// Stack is what the number of a stack stands for.
type Stack struct {
	// PID is whose stack it is; 0: the kernel's.
	PID uint64 `json:"pid,omitempty"`
	// Addresses of the frames, innermost first, and the frames as they are printed.
	Addresses []uint64 `json:"addresses"`
	Frames    []string `json:"frames"`
}

// MaxFrames is how many frames the kernel walks up (kernel.perf_event_max_stack, unless an administrator has changed it).
const MaxFrames = 127
