package bpftest
func (r *Runner) Verified() uint32 { i, _ := r.program.Info(); n, _ := i.VerifiedInstructions(); return n }
func (r *Runner) Log() string { return r.program.VerifierLog }
