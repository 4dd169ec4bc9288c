package probes

import (
	"slices"
	"strings"
	"time"

	"trace/probes/kernel"
)

// A probe of the table takes its event from the struct group_name in the group's object, and its programs from the hook in that object.
type row struct {
	probe string
	hook  hook
}

var table = []row{
	{"block:complete", hook{name: "block_complete", place: tracepoint{name: "block_rq_complete"}}},
	{"block:error", hook{name: "block_error", place: tracepoint{name: "block_rq_complete", alias: "block_rq_error"}}},
	{"block:insert", hook{name: "block_insert", place: tracepoint{name: "block_rq_insert"}}},
	{"block:issue", hook{name: "block_issue", place: tracepoint{name: "block_rq_issue"}}},
	{"block:merge", hook{name: "block_merge", place: tracepoint{name: "block_bio_backmerge", others: []string{"block_bio_frontmerge", "block_rq_merge"}}}},
	{"block:requeue", hook{name: "block_requeue", place: tracepoint{name: "block_rq_requeue"}}},
	{"block:split", hook{name: "block_split", place: tracepoint{name: "block_split"}}},
	{"block:tag_wait", hook{name: "block_tag_wait", place: functions{{fn("blk_mq_get_tag")}}}},
	{"cache:add", hook{name: "cache_add", place: tracepoint{name: "mm_filemap_add_to_page_cache"}}},
	{"cache:dirty", hook{name: "cache_dirty", place: tracepoint{name: "writeback_dirty_folio", alias: "writeback_dirty_page"}}},
	{"cache:fault", hook{name: "cache_fault", place: functions{{fn("filemap_fault")}}}},
	{"cache:read", hook{name: "cache_read", place: functions{
		{fn("filemap_read"), opt("filemap_splice_read")},
		{fn("generic_file_buffered_read")},
	}}},
	{"cache:readahead", hook{name: "cache_readahead", place: functions{{fn("read_pages")}}}},
	{"cache:remove", hook{name: "cache_remove", place: tracepoint{name: "mm_filemap_delete_from_page_cache"}}},
	{"cm:disconnect", hook{name: "cm_disconnect", place: tracepoint{name: "cm_disconnect"}}},
	{"cm:event_done", hook{name: "cm_event_done", place: tracepoint{name: "cm_event_done"}}},
	{"cm:event_handler", hook{name: "cm_event_handler", place: tracepoint{name: "cm_event_handler"}}},
	{"cm:id_attach", hook{name: "cm_id_attach", place: tracepoint{name: "cm_id_attach"}}},
	{"cm:id_destroy", hook{name: "cm_id_destroy", place: tracepoint{name: "cm_id_destroy"}}},
	{"cm:qp_create", hook{name: "cm_qp_create", place: tracepoint{name: "cm_qp_create"}}},
	{"cm:qp_destroy", hook{name: "cm_qp_destroy", place: tracepoint{name: "cm_qp_destroy"}}},
	{"cm:req_handler", hook{name: "cm_req_handler", place: tracepoint{name: "cm_req_handler"}}},
	{"cm:send_mra", hook{name: "cm_send_mra", place: tracepoint{name: "cm_send_mra", alias: "cm_prepare_mra"}}},
	{"cm:send_rej", hook{name: "cm_send_rej", place: tracepoint{name: "cm_send_rej"}}},
	{"cm:send_rep", hook{name: "cm_send_rep", place: tracepoint{name: "cm_send_rep"}}},
	{"cm:send_req", hook{name: "cm_send_req", place: tracepoint{name: "cm_send_req"}}},
	{"cm:send_rtu", hook{name: "cm_send_rtu", place: tracepoint{name: "cm_send_rtu"}}},
	{"cm:send_sidr_rep", hook{name: "cm_send_sidr_rep", place: tracepoint{name: "cm_send_sidr_rep"}}},
	{"cm:send_sidr_req", hook{name: "cm_send_sidr_req", place: tracepoint{name: "cm_send_sidr_req"}}},
	{"cm:sent_drep", hook{name: "cm_sent_drep", place: tracepoint{name: "cm_sent_drep"}}},
	{"cm:sent_dreq", hook{name: "cm_sent_dreq", place: tracepoint{name: "cm_sent_dreq"}}},
	{"ib:alloc_pd", hook{name: "alloc_pd", place: functions{{fn("rdma_restrack_add"), fn("__ib_alloc_pd"), opt("ib_uverbs_alloc_pd")}}}},
	{"ib:create_cq", hook{name: "create_cq", place: functions{{fn("rdma_restrack_add"), fn("__ib_alloc_cq").as("kernel"), fn("__ib_create_cq").as("kernel"),
		opt("ib_uverbs_create_cq").as("request"), opt("ib_uverbs_ex_create_cq").as("request"), opt("ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE").as("request")}}}},
	{"ib:create_qp", hook{name: "create_qp", place: functions{
		{fn("ib_create_qp_user"), fn("ib_create_qp_kernel")},
		{fn("ib_create_qp"), fn("rdma_restrack_add"), opt("ib_uverbs_create_qp"), opt("ib_uverbs_ex_create_qp"),
			opt("ib_uverbs_handler_UVERBS_METHOD_QP_CREATE")},
	}}},
	{"ib:dealloc_pd", hook{name: "dealloc_pd", place: functions{{fn("ib_dealloc_pd_user"), opt("uverbs_free_pd")}}}},
	{"ib:dereg_mr", hook{name: "dereg_mr", place: functions{{fn("ib_dereg_mr_user")}}}},
	{"ib:destroy_cq", hook{name: "destroy_cq", place: functions{{fn("ib_destroy_cq_user"), fn("ib_free_cq")}}}},
	{"ib:destroy_qp", hook{name: "destroy_qp", place: functions{{fn("ib_destroy_qp_user")}}}},
	{"ib:event", hook{name: "ib_event", place: functions{{fn("ib_dispatch_event_clients"), opt("ib_uverbs_qp_event_handler").inInterrupts(),
		opt("ib_uverbs_cq_event_handler").inInterrupts(), opt("ib_uverbs_srq_event_handler").inInterrupts()}}}},
	{"ib:get_gid", hook{name: "get_gid", place: functions{{fn("rdma_get_gid_attr")}}}},
	{"ib:gid_ndev", hook{name: "gid_ndev", place: functions{{fn("rdma_read_gid_attr_ndev_rcu")}}}},
	{"ib:modify_qp", hook{name: "modify_qp", place: functions{{fn("ib_modify_qp_with_udata"), fn("ib_modify_qp")}}}},
	{"ib:reg_mr", hook{name: "reg_mr", place: functions{{fn("rdma_restrack_add"), fn("ib_alloc_mr").as("kernel"), fn("ib_alloc_mr_integrity").as("kernel"),
		fn("ib_reg_user_mr"), opt("ib_uverbs_reg_mr").as("request"), opt("ib_uverbs_rereg_mr"), opt("ib_uverbs_handler_UVERBS_METHOD_REG_MR").as("request"),
		opt("ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR").as("request"), opt("ib_uverbs_handler_UVERBS_METHOD_DM_MR_REG").as("request")}}}},
	{"memory:compact", hook{name: "memory_compact", place: functions{{fn("try_to_compact_pages")}}}},
	{"memory:migrate", hook{name: "memory_migrate", place: tracepoint{name: "mm_migrate_pages"}}},
	{"memory:reclaim", hook{name: "memory_reclaim", place: functions{{fn("try_to_free_pages"), fn("try_to_free_mem_cgroup_pages")}, {fn("try_to_free_pages")}}}},
	{"memory:stall", hook{name: "memory_stall", place: functions{{fn("psi_memstall_enter"), fn("psi_memstall_leave")}}}},
	{"memory:throttle", hook{name: "memory_throttle", place: functions{
		{fn("balance_dirty_pages"), fn("__mem_cgroup_handle_over_high")}, {fn("balance_dirty_pages"), fn("mem_cgroup_handle_over_high")}, {fn("balance_dirty_pages")},
	}}},
	{"mlx5:alloc_pd", hook{name: "mlx5_alloc_pd", place: functions{{fn("mlx5_ib_alloc_pd")}}}},
	{"mlx5:cmd", hook{name: "mlx5_cmd", module: mlx5Core, elsewhere: true, place: functions{
		{fn("mlx5_cmd_exec"), opt("mlx5_cmd_do"), opt("mlx5_cmd_exec_polling"), opt("mlx5_cmd_exec_cb"), opt("mlx5_cmd_exec_cb_handler").inInterrupts()},
	}}},
	{"mlx5:create_cq", hook{name: "mlx5_create_cq", place: functions{{fn("mlx5_ib_create_cq"), opt("mlx5_ib_create_user_cq")}}}},
	{"mlx5:create_qp", hook{name: "mlx5_create_qp", place: functions{{fn("mlx5_ib_create_qp")}}}},
	{"mlx5:dealloc_pd", hook{name: "mlx5_dealloc_pd", place: functions{{fn("mlx5_ib_dealloc_pd")}}}},
	{"mlx5:dereg_mr", hook{name: "mlx5_dereg_mr", place: functions{{fn("mlx5_ib_dereg_mr")}}}},
	{"mlx5:destroy_cq", hook{name: "mlx5_destroy_cq", place: functions{{fn("mlx5_ib_destroy_cq")}}}},
	{"mlx5:destroy_qp", hook{name: "mlx5_destroy_qp", place: functions{{fn("mlx5_ib_destroy_qp")}}}},
	{"mlx5:modify_qp", hook{name: "mlx5_modify_qp", place: functions{{fn("mlx5_ib_modify_qp")}}}},
	{"mlx5:reg_user_mr", hook{name: "mlx5_reg_user_mr", place: functions{{fn("mlx5_ib_reg_user_mr")}}}},
	{"mlx5:reg_user_mr_dmabuf", hook{name: "mlx5_reg_user_mr_dmabuf", place: functions{{fn("mlx5_ib_reg_user_mr_dmabuf")}}}},
	{"net:counters", hook{name: "net_counters", place: readings{"net", time.Second}}},
	{"nvme:async_event", hook{name: "nvme_async_event", place: tracepoint{name: "nvme_async_event"}}},
	{"nvme:complete_rq", hook{name: "nvme_complete_rq", place: tracepoint{name: "nvme_complete_rq"}}},
	{"nvme:failover", hook{name: "nvme_failover", place: functions{{fn("nvme_failover_req").inInterrupts()}}}},
	{"nvme:setup_cmd", hook{name: "nvme_setup_cmd", place: tracepoint{name: "nvme_setup_cmd"}}},
	{"nvme:sq", hook{name: "nvme_sq", place: tracepoint{name: "nvme_sq"}}},
	// At least one of these, whichever transports are loaded.
	{"nvme:timeout", hook{name: "nvme_timeout", place: functions{
		{fn("nvme_timeout"), opt("nvme_tcp_timeout"), opt("nvme_rdma_timeout"), opt("nvme_fc_timeout")},
		{fn("nvme_tcp_timeout"), opt("nvme_rdma_timeout"), opt("nvme_fc_timeout")},
		{fn("nvme_rdma_timeout"), opt("nvme_fc_timeout")},
		{fn("nvme_fc_timeout")},
	}}},
	{"oom:kill", hook{name: "oom_kill", elsewhere: true, place: functions{{fn("oom_kill_process"), fn("__oom_kill_process"), fn("mark_oom_victim")}}}},
	{"profile:hz", hook{name: "profile_hz", place: clock{}}},
	{"rdma:counters", hook{name: "rdma_counters", place: readings{"rdma", time.Second}}},
	{"rdma:qp", hook{name: "rdma_qp", place: functions{{fn("ib_query_qp")}}, room: rdmaQPs, inquiry: &inquiry{mark: "raw_tp_rdma_qp_ask", ask: queryQPs}}},
	{"rdma:resource", hook{
		name:  "rdma_resource",
		place: functions{{fn("rdma_restrack_add"), fn("rdma_restrack_del"), opt("rdma_restrack_begin_del"), opt("rdma_restrack_abort_del")}},
		seed: &seed{
			visit:   hook{name: "rdma_visit", place: functions{{fn("rdma_restrack_get"), opt("rdma_restrack_sync")}}},
			lost:    "raw_tp_rdma_lost",
			objects: rdmaObjects,
			counts:  countRDMA,
			walk:    walkRDMA,
		},
	}},
	{"sched:hung", hook{name: "sched_hung", place: tracepoint{name: "sched_process_hang"}, elsewhere: true}},
	{"sched:migrate", hook{name: "sched_migrate", place: tracepoint{name: "sched_migrate_task"}, elsewhere: true}},
	{"sched:offcpu", hook{name: "sched_offcpu", place: tracepoint{name: "sched_switch"}, elsewhere: true}},
	{"sched:runq", hook{name: "sched_runq", place: tracepoint{name: "sched_switch"}, elsewhere: true}},
	{"sched:switch", hook{name: "sched_switch", place: tracepoint{name: "sched_switch"}}},
	{"sched:throttle", hook{name: "sched_throttle", place: functions{{fn("unthrottle_cfs_rq").inInterrupts()}}}},
	{"syscall:enter", hook{name: "syscall_enter", place: tracepoint{name: "sys_enter"}, selector: "nr"}},
	{"syscall:exit", hook{name: "syscall_exit", place: tracepoint{name: "sys_exit"}}},
	{"verbs:complete", hook{name: "verbs_complete", place: datapath{"poll_cq", "next_poll", "end_poll"},
		needs: []string{"verbs_built", "verbs_given", "verbs_posted", "verbs_read_opcode", "verbs_read_qp", "verbs_renewed"}}},
	{"verbs:open", hook{name: "verbs_open", place: openings{}}},
	{"verbs:poll", hook{name: "verbs_poll", place: datapath{"poll_cq", "start_poll", "next_poll"}, dense: "verbs:poll_cq"}},
	{"verbs:poll_cq", hook{name: "verbs_poll_cq", place: datapath{"poll_cq", "next_poll", "end_poll"}, needs: []string{"verbs_given"}}},
	{"verbs:post_recv", hook{name: "verbs_post_recv", place: datapath{"post_recv", "post_srq_recv"}}},
	{"verbs:post_send", hook{name: "verbs_post_send", place: datapath{"post_send", "wr_complete"}, needs: []string{"verbs_built"}}},
	{"vm:exit", hook{name: "vm_exit", place: functions{{fn("exit_mmap")}}}},
	{"vm:fault", hook{name: "vm_fault", place: functions{{fn("handle_mm_fault")}}}},
	{"vm:map", hook{name: "vm_map", place: functions{{fn("vm_mmap_pgoff"), fn("__vm_munmap"), sys("brk"), sys("mremap"), sysCompat("brk"), sysCompat("mremap")}}}},
	{"vm:rss", hook{name: "vm_rss", place: tracepoint{name: "rss_stat"}}},
	{"vm:size", hook{name: "vm_size", place: readings{"processes", 10 * time.Second}}},
	{"vm:stack", hook{name: "vm_stack", place: functions{{fn("expand_stack_locked").as("grow")}, {fn("expand_stack").as("grow")}}}},
}

var helpers = []hook{
	{name: "block_begun", place: tracepoint{name: "block_rq_insert", alias: "block_io_start"}, room: diskRequests},
	{name: "block_handed", place: tracepoint{name: "block_rq_issue"}},
	{name: "block_requeued", place: tracepoint{name: "block_rq_requeue"}, room: diskRequests},
	{name: "cache_added", place: tracepoint{name: "mm_filemap_add_to_page_cache"}},
	{name: "cache_missed", place: functions{{fn("page_cache_sync_ra")}}},
	{name: "memory_migrating", place: functions{{fn("migrate_pages")}}},
	{name: "mlx5_qp_state", place: functions{{fn("mlx5_ib_modify_qp"), fn("mlx5_ib_destroy_qp")}}},
	{name: "nvme_cqe", place: tracepoint{name: "nvme_sq"}},
	{name: "nvme_ended", place: tracepoint{name: "nvme_complete_rq"}},
	{name: "nvme_inflight", place: tracepoint{name: "nvme_setup_cmd"}, room: nvmeRequests},
	{name: "nvme_learn", place: tracepoint{name: "nvme_setup_cmd"}, unless: "nvme_request"},
	{name: "qp_state", place: functions{{fn("ib_modify_qp_with_udata"), fn("ib_modify_qp"), fn("ib_destroy_qp_user")}}},
	{name: "rdma_device", place: functions{{opt("res_to_dev"), opt("ib_device_get_by_index")}}, unless: "rdma_id_private", room: rdmaCMIDs},
	{name: "sched_moved", place: tracepoint{name: "sched_migrate_task"}},
	{name: "sched_waker", place: tracepoint{name: "sched_waking"}},
	{name: "syscall_start", place: tracepoint{name: "sys_enter"}},
	{name: "verbs_built", place: datapath{"wr_abort", "wr_atomic_cmp_swp", "wr_atomic_fetch_add", "wr_atomic_write", "wr_bind_mw", "wr_flush",
		"wr_local_inv", "wr_rdma_read", "wr_rdma_write", "wr_rdma_write_imm", "wr_send", "wr_send_imm", "wr_send_inv", "wr_send_tso",
		"wr_set_inline_data", "wr_set_inline_data_list", "wr_set_sge", "wr_set_sge_list", "wr_start"}},
	{name: "verbs_given", place: datapath{"start_poll", "next_poll"}},
	{name: "verbs_posted", place: datapath{"post_send", "wr_complete"}},
	{name: "verbs_read_bytes", place: datapath{"read_byte_len"}},
	{name: "verbs_read_imm", place: datapath{"read_imm_data", "read_wc_flags"}},
	{name: "verbs_read_opcode", place: datapath{"read_opcode"}},
	{name: "verbs_read_qp", place: datapath{"read_qp_num"}},
	{name: "verbs_read_src_qp", place: datapath{"read_src_qp"}},
	{name: "verbs_read_ticks", place: datapath{"read_completion_ts"}},
	{name: "verbs_read_vendor_err", place: datapath{"read_vendor_err"}},
	{name: "verbs_read_wallclock", place: datapath{"read_completion_wallclock_ns"}},
	{name: "verbs_renewed", place: functions{{opt("ib_modify_qp_with_udata"), opt("ib_destroy_qp_user")}}},
	{name: "vm_resized", place: functions{{opt("copy_vma"), opt("vma_adjust_trans_huge")}}},
	{name: "vm_unmapped", place: functions{{fn("vm_area_free")}}},
}

// A group is the probes of one object.
type group struct {
	name string
	// module is where the functions, tracepoints and types of the object live.
	module kernel.Module
	// apart means that a program must name the probes, see [event.Probe.Apart].
	apart bool
	// echoes is [event.Probe.Echoes].
	echoes bool
}

// The groups, sorted by how interesting their modules are.
var groups = []group{
	{name: "ib", module: kernel.Module{Name: "ib_core", Others: []string{"ib_uverbs"}, Types: []string{"ib_", "rdma_", "uverbs_"},
		Headers: []string{"<rdma/ib_verbs.h>", "<rdma/rdma_counter.h>", "<rdma/uverbs_ioctl.h>"}, Load: "modprobe ib_uverbs"}},
	{name: "mlx5", apart: true, module: kernel.Module{Name: "mlx5_ib", Types: []string{"ib_", "rdma_"}, DescribedBy: "ib_core", Load: "modprobe mlx5_ib"}},
	{name: "cm", module: kernel.Module{Name: "rdma_cm", Types: []string{"ib_", "rdma_"}, Headers: []string{"<rdma/rdma_cm.h>", `"cma_priv.h"`}, Load: "modprobe rdma_cm", Events: "rdma_cma"}},
	{name: "net"},
	{name: "nvme", module: kernel.Module{Name: "nvme_core", Types: []string{"nvme_"}, Headers: []string{`"nvme.h"`}, Load: "modprobe nvme"}},
	{name: "block"},
	{name: "memory"},
	{name: "oom"},
	{name: "cache", apart: true},
	{name: "profile"},
	{name: "rdma", module: kernel.Module{Name: "ib_core", Types: []string{"ib_", "rdma_"}, Load: "modprobe ib_uverbs"}},
	{name: "sched"},
	{name: "syscall", echoes: true, module: kernel.Module{Events: "raw_syscalls"}},
	{name: "verbs", module: verbsModule},
	{name: "vm", apart: true, module: kernel.Module{Events: "kmem"}},
}

// verbsModule is what the programs of a data path need: the processes that use RDMA devices, and the QPs that they change.
var verbsModule = kernel.Module{Name: "ib_core", Types: []string{"ib_", "rdma_"}, Headers: []string{"<rdma/ib_verbs.h>"}, Load: "modprobe ib_uverbs"}

// mlx5Core is what mlx5:cmd traces, besides its group's module.
var mlx5Core = &kernel.Module{Name: "mlx5_core", Types: []string{"mlx5_"}, Headers: []string{"<linux/mlx5/driver.h>"}, Load: "modprobe mlx5_core"}

// isHelper reports whether the hook is one of the helpers.
func (hk hook) isHelper() bool {
	return slices.ContainsFunc(helpers, func(o hook) bool { return o.name == hk.name })
}

func allHooks() []hook {
	hooks := slices.Clone(helpers)
	for _, e := range table {
		hooks = append(hooks, e.hook)
		if e.hook.seed != nil {
			hooks = append(hooks, e.hook.seed.visit)
		}
	}
	return hooks
}

// hookOf returns the hook of a probe; ok is false if the table does not have it.
func hookOf(probe string) (hk hook, ok bool) {
	i := slices.IndexFunc(table, func(e row) bool { return e.probe == probe })
	if i < 0 {
		return hook{}, false
	}
	return table[i].hook, true
}

// groupNamed returns a group of the table.
func groupNamed(name string) group {
	return groups[slices.IndexFunc(groups, func(g group) bool { return g.name == name })]
}

// modules returns the modules of all hooks of a group's probes, the group's own first.
func (g group) modules() []kernel.Module {
	all := []kernel.Module{g.module}
	for _, e := range table {
		of, _, _ := strings.Cut(e.probe, ":")
		if m := e.hook.module; of == g.name && m != nil && !slices.ContainsFunc(all, func(o kernel.Module) bool { return o.Name == m.Name }) {
			all = append(all, *m)
		}
	}
	return all
}

// moduleOf returns the module of a hook of the group.
func (g group) moduleOf(hk hook) kernel.Module {
	if hk.module != nil {
		return *hk.module
	}
	return g.module
}
