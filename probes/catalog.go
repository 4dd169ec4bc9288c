package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"trace/bpf"
	"trace/probes/event"
)

// A probe of the table takes its event from the struct group_name of the object called like its group, and its programs from the
// hook in that object.
type entry struct {
	probe string
	hook  hook
}

// A hook is a set of programs that belong together, under one name in the C source. There is one for each probe, and helpers that
// are attached when a field NEEDS them.
type hook struct {
	name string
	// tracepoint is attached as raw_tp or tracepoint, whichever the object has; or else
	tracepoint string
	// alias is the name that the tracepoint has in other kernels.
	alias string
	// functions are attached as fexit or kprobe: the first alternative whose functions this kernel has, as parseFunction reads them.
	functions [][]string
	// module is where its functions are, if not in the module of the object: a key of modules.
	module string
	// sampled is attached to a clock on each CPU, which ticks Request.Hz times a second.
	sampled bool
	// unless names a type of the kernel; where it is known the hook is not needed.
	unless string
	// entries says how many the maps whose names begin with that of the hook have to hold on this host, if more than the C source says.
	entries func() uint32
	// seed is how what was there before is told, of a probe whose events say that objects come and go.
	seed *seed
}

// isHelper tells whether the hook is one of the helpers.
func (hk hook) isHelper() bool {
	return slices.ContainsFunc(helpers, func(o hook) bool { return o.name == hk.name })
}

var table = []entry{
	{"cm:disconnect", hook{name: "cm_disconnect", tracepoint: "cm_disconnect"}},
	{"cm:event_done", hook{name: "cm_event_done", tracepoint: "cm_event_done"}},
	{"cm:event_handler", hook{name: "cm_event_handler", tracepoint: "cm_event_handler"}},
	{"cm:id_attach", hook{name: "cm_id_attach", tracepoint: "cm_id_attach"}},
	{"cm:id_destroy", hook{name: "cm_id_destroy", tracepoint: "cm_id_destroy"}},
	{"cm:qp_create", hook{name: "cm_qp_create", tracepoint: "cm_qp_create"}},
	{"cm:qp_destroy", hook{name: "cm_qp_destroy", tracepoint: "cm_qp_destroy"}},
	{"cm:req_handler", hook{name: "cm_req_handler", tracepoint: "cm_req_handler"}},
	{"cm:send_mra", hook{name: "cm_send_mra", tracepoint: "cm_send_mra", alias: "cm_prepare_mra"}},
	{"cm:send_rej", hook{name: "cm_send_rej", tracepoint: "cm_send_rej"}},
	{"cm:send_rep", hook{name: "cm_send_rep", tracepoint: "cm_send_rep"}},
	{"cm:send_req", hook{name: "cm_send_req", tracepoint: "cm_send_req"}},
	{"cm:send_rtu", hook{name: "cm_send_rtu", tracepoint: "cm_send_rtu"}},
	{"cm:send_sidr_rep", hook{name: "cm_send_sidr_rep", tracepoint: "cm_send_sidr_rep"}},
	{"cm:send_sidr_req", hook{name: "cm_send_sidr_req", tracepoint: "cm_send_sidr_req"}},
	{"cm:sent_drep", hook{name: "cm_sent_drep", tracepoint: "cm_sent_drep"}},
	{"cm:sent_dreq", hook{name: "cm_sent_dreq", tracepoint: "cm_sent_dreq"}},
	{"ib:alloc_pd", hook{name: "alloc_pd", functions: [][]string{{"rdma_restrack_add", "__ib_alloc_pd", "ib_uverbs_alloc_pd?"}}}},
	{"ib:create_cq", hook{name: "create_cq", functions: [][]string{{"rdma_restrack_add", "__ib_alloc_cq/kernel", "__ib_create_cq/kernel",
		"ib_uverbs_create_cq/request?", "ib_uverbs_ex_create_cq/request?", "ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE/request?"}}}},
	{"ib:create_qp", hook{name: "create_qp", functions: [][]string{
		{"ib_create_qp_user", "ib_create_qp_kernel"},
		{"ib_create_qp", "rdma_restrack_add", "ib_uverbs_create_qp?", "ib_uverbs_ex_create_qp?",
			"ib_uverbs_handler_UVERBS_METHOD_QP_CREATE?"},
	}}},
	{"ib:dealloc_pd", hook{name: "dealloc_pd", functions: [][]string{{"ib_dealloc_pd_user", "uverbs_free_pd?"}}}},
	{"ib:dereg_mr", hook{name: "dereg_mr", functions: [][]string{{"ib_dereg_mr_user"}}}},
	{"ib:destroy_cq", hook{name: "destroy_cq", functions: [][]string{{"ib_destroy_cq_user", "ib_free_cq"}}}},
	{"ib:destroy_qp", hook{name: "destroy_qp", functions: [][]string{{"ib_destroy_qp_user"}}}},
	{"ib:get_gid", hook{name: "get_gid", functions: [][]string{{"rdma_get_gid_attr"}}}},
	{"ib:gid_ndev", hook{name: "gid_ndev", functions: [][]string{{"rdma_read_gid_attr_ndev_rcu"}}}},
	{"ib:modify_qp", hook{name: "modify_qp", functions: [][]string{{"ib_modify_qp_with_udata", "ib_modify_qp"}}}},
	{"ib:reg_mr", hook{name: "reg_mr", functions: [][]string{{"rdma_restrack_add", "ib_alloc_mr/kernel", "ib_alloc_mr_integrity/kernel",
		"ib_reg_user_mr", "ib_uverbs_reg_mr/request?", "ib_uverbs_rereg_mr?", "ib_uverbs_handler_UVERBS_METHOD_REG_MR/request?",
		"ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR/request?", "ib_uverbs_handler_UVERBS_METHOD_DM_MR_REG/request?"}}}},
	{"mlx5:alloc_pd", hook{name: "mlx5_alloc_pd", functions: [][]string{{"mlx5_ib_alloc_pd"}}}},
	{"mlx5:cmd", hook{name: "mlx5_cmd", module: "mlx5_core", functions: [][]string{
		{"mlx5_cmd_exec", "mlx5_cmd_do?", "mlx5_cmd_exec_polling?", "mlx5_cmd_exec_cb?", "mlx5_cmd_exec_cb_handler?"},
	}}},
	{"mlx5:create_cq", hook{name: "mlx5_create_cq", functions: [][]string{{"mlx5_ib_create_cq", "mlx5_ib_create_user_cq?"}}}},
	{"mlx5:create_qp", hook{name: "mlx5_create_qp", functions: [][]string{{"mlx5_ib_create_qp"}}}},
	{"mlx5:dealloc_pd", hook{name: "mlx5_dealloc_pd", functions: [][]string{{"mlx5_ib_dealloc_pd"}}}},
	{"mlx5:dereg_mr", hook{name: "mlx5_dereg_mr", functions: [][]string{{"mlx5_ib_dereg_mr"}}}},
	{"mlx5:destroy_cq", hook{name: "mlx5_destroy_cq", functions: [][]string{{"mlx5_ib_destroy_cq"}}}},
	{"mlx5:destroy_qp", hook{name: "mlx5_destroy_qp", functions: [][]string{{"mlx5_ib_destroy_qp"}}}},
	{"mlx5:modify_qp", hook{name: "mlx5_modify_qp", functions: [][]string{{"mlx5_ib_modify_qp"}}}},
	{"mlx5:reg_user_mr", hook{name: "mlx5_reg_user_mr", functions: [][]string{{"mlx5_ib_reg_user_mr"}}}},
	{"mlx5:reg_user_mr_dmabuf", hook{name: "mlx5_reg_user_mr_dmabuf", functions: [][]string{{"mlx5_ib_reg_user_mr_dmabuf"}}}},
	{"nvme:async_event", hook{name: "nvme_async_event", tracepoint: "nvme_async_event"}},
	{"nvme:complete_rq", hook{name: "nvme_complete_rq", tracepoint: "nvme_complete_rq"}},
	{"nvme:failover", hook{name: "nvme_failover", functions: [][]string{{"nvme_failover_req"}}}},
	{"nvme:setup_cmd", hook{name: "nvme_setup_cmd", tracepoint: "nvme_setup_cmd"}},
	{"nvme:sq", hook{name: "nvme_sq", tracepoint: "nvme_sq"}},
	// Whichever transports are loaded, at least one of them.
	{"nvme:timeout", hook{name: "nvme_timeout", functions: [][]string{
		{"nvme_timeout", "nvme_tcp_timeout?", "nvme_rdma_timeout?", "nvme_fc_timeout?"},
		{"nvme_tcp_timeout", "nvme_rdma_timeout?", "nvme_fc_timeout?"},
		{"nvme_rdma_timeout", "nvme_fc_timeout?"},
		{"nvme_fc_timeout"},
	}}},
	{"profile:hz", hook{name: "profile_hz", sampled: true}},
	{"rdma:resource", hook{
		name:      "rdma_resource",
		functions: [][]string{{"rdma_restrack_add", "rdma_restrack_del", "rdma_restrack_begin_del?", "rdma_restrack_abort_del?"}},
		seed: &seed{
			visit:   hook{name: "rdma_visit", functions: [][]string{{"rdma_restrack_get", "rdma_restrack_sync?"}}},
			lost:    "raw_tp_rdma_lost",
			objects: rdmaObjects,
			counts:  countRDMA,
			walk:    walkRDMA,
		},
	}},
	{"syscall:enter", hook{name: "syscall_enter", tracepoint: "sys_enter"}},
	{"syscall:exit", hook{name: "syscall_exit", tracepoint: "sys_exit"}},
}

var helpers = []hook{
	{name: "mlx5_qp_state", functions: [][]string{{"mlx5_ib_modify_qp", "mlx5_ib_destroy_qp"}}},
	{name: "nvme_cqe", tracepoint: "nvme_sq"},
	{name: "nvme_ended", tracepoint: "nvme_complete_rq"},
	{name: "nvme_inflight", tracepoint: "nvme_setup_cmd", entries: nvmeRequests},
	{name: "nvme_learn", tracepoint: "nvme_setup_cmd", unless: "nvme_request"},
	{name: "qp_state", functions: [][]string{{"ib_modify_qp_with_udata", "ib_modify_qp", "ib_destroy_qp_user"}}},
	{name: "rdma_device", functions: [][]string{{"res_to_dev?", "ib_device_get_by_index?"}}, unless: "rdma_id_private", entries: rdmaCMIDs},
	{name: "syscall_start", tracepoint: "sys_enter"},
}

// The object with the program that follows forks, the program and where it is attached.
const (
	childrenObject = "children"
	forkProgram    = "raw_tp_children"
	forkTracepoint = "sched_process_fork"
)

// A module is where the functions, tracepoints and types of an object live.
type module struct {
	name string
	// other modules that have functions of the object's hooks, and no types of their own that it reads.
	others []string
	// types begins the names of the types that belong to the module: an out-of-tree module may have changed them.
	types []string
	// describedBy is the module whose BTF has these types, if it is another: a key of modules.
	describedBy string
	// load is how to get it.
	load string
	// events is the folder of its tracepoints in tracefs, if their records are read.
	events string
}

// The modules of objects, and those that hooks name.
var modules = map[string]module{
	"cm":        {name: "rdma_cm", types: []string{"ib_", "rdma_"}, load: "modprobe rdma_cm", events: "rdma_cma"},
	"ib":        {name: "ib_core", others: []string{"ib_uverbs"}, types: []string{"ib_", "rdma_", "uverbs_"}, load: "modprobe ib_uverbs"},
	"mlx5":      {name: "mlx5_ib", types: []string{"ib_", "rdma_"}, describedBy: "ib", load: "modprobe mlx5_ib"},
	"mlx5_core": {name: "mlx5_core", types: []string{"mlx5_"}, load: "modprobe mlx5_core"},
	"nvme":      {name: "nvme_core", types: []string{"nvme_"}, load: "modprobe nvme"},
	"profile":   {},
	"rdma":      {name: "ib_core", types: []string{"ib_", "rdma_"}, load: "modprobe ib_uverbs"},
	"syscall":   {events: "raw_syscalls"},
}

// all names the module and the others.
func (m module) all() []string { return append([]string{m.name}, m.others...) }

func (m module) owns(typeName string) bool {
	for _, prefix := range m.types {
		if strings.HasPrefix(typeName, prefix) {
			return true
		}
	}
	return false
}

// A kernelFunc is a function of a hook.
type kernelFunc struct {
	name string
	// shared is what the C source calls programs that several functions share: a whole event is much code to have once for each.
	shared string
	// optional functions are used where they exist.
	optional bool
}

// parseFunction reads how the table writes a function: name, or name/shared, with ? at the end if it is optional.
func parseFunction(text string) kernelFunc {
	text, optional := strings.CutSuffix(text, "?")
	name, shared, _ := strings.Cut(text, "/")
	return kernelFunc{name: name, shared: shared, optional: optional}
}

// describer is the module whose BTF has the types that belong to m.
func (m module) describer() module {
	if m.describedBy == "" {
		return m
	}
	return modules[m.describedBy]
}

// moduleOf is the key of the module where a hook of an object is attached.
func (hk hook) moduleOf(object string) string {
	if hk.module != "" {
		return hk.module
	}
	return object
}

// modulesOf are the keys of all modules that the hooks of an object are attached to.
func modulesOf(object string) []string {
	keys := []string{object}
	for _, e := range table {
		group, _, _ := strings.Cut(e.probe, ":")
		if key := e.hook.moduleOf(object); group == object && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Catalog is every probe that there is, the same on every host.
type Catalog struct {
	probes  []*event.Probe
	sources map[string]*source // by the name of the probe
	cgroups *Cgroups
	types   map[string]*btf.Spec // by object
	// objects, parsed once; who changes one takes a copy.
	objects map[string]func() (*ebpf.CollectionSpec, error)
}

// Load reads the catalog from the embedded objects: the groups named, or all if none is. It takes a millisecond or two for each.
func Load(groups ...string) (*Catalog, error) {
	c := &Catalog{sources: make(map[string]*source), types: make(map[string]*btf.Spec), objects: make(map[string]func() (*ebpf.CollectionSpec, error)), cgroups: newCgroups()}
	enums := map[string]*event.Enum{cgroupType: event.NewCgroupEnum(c.cgroups)}
	for _, e := range table {
		group, name, _ := strings.Cut(e.probe, ":")
		if len(groups) > 0 && !slices.Contains(groups, group) {
			continue
		}
		if c.types[group] == nil {
			types, err := bpf.Types(group)
			if err != nil {
				return nil, err
			}
			c.types[group] = types
			c.objects[group] = sync.OnceValues(func() (*ebpf.CollectionSpec, error) { return bpf.Load(group) })
		}
		s, err := newSource(group, name, e.hook, c.types[group], enums)
		if err != nil {
			return nil, fmt.Errorf("probe %s: %w", e.probe, err)
		}
		c.probes = append(c.probes, s.Probe)
		c.sources[e.probe] = s
	}
	sort.Slice(c.probes, func(i, j int) bool { return c.probes[i].String() < c.probes[j].String() })
	return c, nil
}

// Cgroups are those of this host, which give the values of type cgroup their names.
func (c *Catalog) Cgroups() *Cgroups { return c.cgroups }

// Probes returns all probes, sorted by name.
func (c *Catalog) Probes() []*event.Probe { return c.probes }

// Match returns the probes whose names match a glob.
func (c *Catalog) Match(glob string) []*event.Probe { return event.Match(c.probes, glob) }

// A source is a probe of the catalog, and how its events come about.
type source struct {
	*event.Probe
	hook hook
	// needs are the helper hooks that have to be attached for a field, by its name.
	needs map[string][]string
	// atReturn has the fields that the return of a function tells by itself (AT_RETURN in bpf/trace.h).
	atReturn map[string]bool
}

// source of a probe of the catalog.
func (c *Catalog) source(p *event.Probe) *source { return c.sources[p.String()] }

// hookOf returns the hook of a probe, that of none if the table does not have it.
func hookOf(p *event.Probe) hook {
	for _, e := range table {
		if e.probe == p.String() {
			return e.hook
		}
	}
	return hook{}
}

func newSource(group, name string, h hook, types *btf.Spec, enums map[string]*event.Enum) (*source, error) {
	var record *btf.Struct
	if err := types.TypeByName(group+"_"+name, &record); err != nil {
		return nil, err
	}
	s, err := sourceOf(group, name, record, enums)
	if err != nil {
		return nil, err
	}
	s.hook = h
	if h.tracepoint != "" {
		s.Sources = append(s.Sources, h.tracepoint)
	}
	for _, f := range slices.Concat(h.functions...) {
		s.Sources = append(s.Sources, parseFunction(f).name)
	}
	return s, nil
}

// ProbeOf makes a probe of an event struct that no object has. It cannot be attached; its events are for trying what is done with
// events.
func ProbeOf(group, name string, record *btf.Struct) (*event.Probe, error) {
	s, err := sourceOf(group, name, record, make(map[string]*event.Enum))
	if err != nil {
		return nil, err
	}
	return s.Probe, nil
}

func sourceOf(group, name string, record *btf.Struct, enums map[string]*event.Enum) (*source, error) {
	r := structReader{enums: enums}
	if err := r.read(record.Members, "", 0); err != nil {
		return nil, err
	}
	s := &source{Probe: event.NewProbe(group, name, tagged(record.Tags, "doc:"), r.fields), needs: make(map[string][]string), atReturn: make(map[string]bool)}
	s.Size = int(record.Size)
	for i, f := range s.Fields {
		s.needs[f.Name] = allTagged(r.tags[i], "needs:")
		s.atReturn[f.Name] = slices.Contains(r.tags[i], "at:return")
	}
	return s, nil
}

// commonFields are declared by COMMON in trace.h.
var commonFields = map[string]bool{
	"nsecs": true, "pid": true, "tid": true, "uid": true, "cpu": true, "cgroup": true, "comm": true,
}

// structReader reads the fields of an event struct, and their tags. Fields of one enum share it.
type structReader struct {
	enums  map[string]*event.Enum
	fields []event.Field
	tags   [][]string
}

// read flattens the members of a struct at offset base; nested structs give dotted names.
func (r *structReader) read(members []btf.Member, prefix string, base int) error {
	has, err := presenceBits(members, base)
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.Name == "has" {
			continue
		}
		offset := base + int(m.Offset.Bytes())
		if s, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok {
			if err := r.read(s.Members, prefix+m.Name+".", offset); err != nil {
				return err
			}
			continue
		}
		t, err := typeOf(m, r.enums)
		if err != nil {
			return fmt.Errorf("field %s%s: %w", prefix, m.Name, err)
		}
		line, err := lineOf(m.Tags, t)
		if err != nil {
			return fmt.Errorf("field %s%s: %w", prefix, m.Name, err)
		}
		f := event.Field{Name: prefix + m.Name, Doc: tagged(m.Tags, "doc:"), Type: t, Line: line, Offset: offset, Common: commonFields[prefix+m.Name]}
		f.Presence, f.Optional = has[m.Name]
		r.fields, r.tags = append(r.fields, f), append(r.tags, m.Tags)
	}
	return nil
}

// presenceBits reads the bit fields of the member called has: one for each sibling that may be absent.
func presenceBits(members []btf.Member, base int) (map[string]event.Bit, error) {
	bits := make(map[string]event.Bit)
	for _, m := range members {
		if m.Name != "has" {
			continue
		}
		s, ok := btf.UnderlyingType(m.Type).(*btf.Struct)
		if !ok {
			return nil, errors.New("member has is no struct")
		}
		for _, b := range s.Members {
			if b.BitfieldSize != 1 {
				return nil, fmt.Errorf("presence bit %s is %d bits wide", b.Name, b.BitfieldSize)
			}
			bits[b.Name] = event.Bit{Offset: base + int(m.Offset.Bytes()) + int(b.Offset/8), Mask: 1 << (b.Offset % 8)}
		}
	}
	return bits, nil
}

// cgroupType is the typedef of cgroup ids.
const cgroupType = "cgroup_t"

// units says what a typedef of trace.h means.
var units = map[string]event.Unit{
	"ns_t": event.Nanoseconds, "bytes_t": event.Bytes, "errno_t": event.Errno, cgroupType: event.Cgroup, "ip_t16": event.IP,
	"hex8_t": event.Hex, "hex16_t": event.Hex, "hex32_t": event.Hex, "hex64_t": event.Hex,
}

func typeOf(m btf.Member, enums map[string]*event.Enum) (event.Type, error) {
	t := m.Type
	size, err := btf.Sizeof(t)
	if err != nil {
		return event.Type{}, err
	}
	typ := event.Type{Size: size}
	if def, ok := t.(*btf.Typedef); ok {
		typ.Unit = units[def.Name]
		if typ.Unit == event.Cgroup {
			typ.Enum = enums[cgroupType]
		}
		if def.Name == "gid_t16" || def.Name == "ip_t16" {
			typ.Kind = event.GID
			return typ, nil
		}
	}
	switch u := btf.UnderlyingType(t).(type) {
	case *btf.Int:
		typ.Kind = intKind(u)
	case *btf.Enum:
		if enums[u.Name] == nil {
			enums[u.Name] = newEnum(u)
		}
		typ.Kind, typ.Enum = event.Uint, enums[u.Name]
		if u.Signed {
			typ.Kind = event.Int
		}
		if slices.Contains(m.Tags, "flags") {
			typ.Enum.Flags = true
		}
		if classes := tagged(m.Tags, "classes:"); classes != "" {
			typ.Enum.Classes = strings.Fields(classes)
		}
	case *btf.Array:
		typ.Kind = event.String
	default:
		return event.Type{}, fmt.Errorf("type %s is of no kind that a field can be", t)
	}
	return typ, nil
}

func intKind(t *btf.Int) event.Kind {
	switch t.Encoding {
	case btf.Bool:
		return event.Bool
	case btf.Signed:
		return event.Int
	default:
		return event.Uint
	}
}

// newEnum strips the name of the enum and two underscores that begin each of its names: C has one namespace for all of them.
func newEnum(t *btf.Enum) *event.Enum {
	values := append([]btf.EnumValue(nil), t.Values...)
	sort.SliceStable(values, func(i, j int) bool { return int64(values[i].Value) < int64(values[j].Value) })
	e := &event.Enum{Name: t.Name}
	for _, v := range values {
		e.Names = append(e.Names, strings.TrimPrefix(v.Name, t.Name+"__"))
		e.Values = append(e.Values, int64(v.Value))
	}
	return e
}

func tagged(tags []string, prefix string) string {
	if all := allTagged(tags, prefix); len(all) > 0 {
		return all[0]
	}
	return ""
}

func allTagged(tags []string, prefix string) []string {
	var found []string
	for _, tag := range tags {
		if text, ok := strings.CutPrefix(tag, prefix); ok {
			found = append(found, text)
		}
	}
	return found
}

// A seed is how a probe that tells of objects, as they come and go, tells of those that are there when it is attached, and of what the
// kernel skips later (SEEDED in bpf/trace.h).
type seed struct {
	// visit is a hook on the kernel's way over its objects.
	visit hook
	// lost is the program that tells that an object has gone. It is attached to nothing; we run it.
	lost string
	// objects says how many there are, about.
	objects func() uint32
	// counts says how many objects there are of the classes that the kernel counts.
	counts func(context.Context) (map[class]int, error)
	// walk sends the kernel over all of them. gone counts objects that went away meanwhile, so that it can go again where it may
	// have skipped one.
	walk func(ctx context.Context, gone func() (uint32, error)) (walked, error)
}

// A class of objects is a number by which programs tell them apart.
type class uint32

// walked is the outcome of a walk.
type walked struct {
	// whole are the classes of which each object was met that is there.
	whole map[class]bool
	// notes say what was not reached, and why.
	notes []string
}

// maxSeeds bounds the memory for the objects that are known: about 75 MiB.
const maxSeeds = 1 << 18
