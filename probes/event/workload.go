package event

// Workload is what a cgroup runs, by the names that people give it. "" is none.
type Workload struct {
	// Unit is the innermost systemd unit that is not a slice.
	Unit string `json:"unit,omitempty"`
	// Pod and Namespace are of Kubernetes.
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Container is the name of a container, or the start of its id if the name is not known; Image is its image.
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"`
	// Job and Step are of Slurm.
	Job  string `json:"job,omitempty"`
	Step string `json:"step,omitempty"`
}

// workloadNames are the fields of a workload.
var workloadNames = []struct {
	name, doc string
	of        func(*Workload) *string
}{
	{"unit", "systemd unit of the cgroup: a service or a scope", func(w *Workload) *string { return &w.Unit }},
	{"pod", "Kubernetes pod of the cgroup", func(w *Workload) *string { return &w.Pod }},
	{"namespace", "Kubernetes namespace of the pod", func(w *Workload) *string { return &w.Namespace }},
	{"container", "container of the cgroup: its name, or the start of its id", func(w *Workload) *string { return &w.Container }},
	{"image", "image of the container", func(w *Workload) *string { return &w.Image }},
	{"job", "Slurm job of the cgroup: its number, or its SLUID", func(w *Workload) *string { return &w.Job }},
	{"step", "Slurm step of the job: a number, or batch, extern, interactive", func(w *Workload) *string { return &w.Step }},
}

// workloadSize is room for a name: systemd and Kubernetes allow 255 bytes at most.
const workloadSize = 256

// WorkloadOf returns the fields that name the workload of a cgroup.
func WorkloadOf(cgroup *Field) (fields []*Field) {
	for _, n := range workloadNames {
		t := Type{Kind: String, Size: workloadSize}
		if cgroup.Type.Enum != nil {
			t.Enum = cgroup.Type.Enum.names[n.name]
		}
		fields = append(fields, &Field{Name: n.name, Doc: n.doc, Type: t, Common: true, Optional: true, Line: Line{Shown: Verbose}, Of: cgroup})
	}
	return fields
}

// NamesWorkload reports whether values of the type are names of the workloads of cgroups, which NameOf of its enum makes of the cgroups' ids.
func (t Type) NamesWorkload() bool { return t.Kind == String && t.Enum != nil && t.Enum.name != nil }

// nameOf returns the name of the workload of an event.
func nameOf(f *Field, e Source) (value any, ok bool) {
	id, ok := e.Get(f.Of)
	if !ok || f.Type.Enum == nil {
		return nil, false
	}
	name := f.Type.Enum.NameOf(To[int64](id))
	if name == "" {
		return nil, false
	}
	return name, true
}
