// SPDX-License-Identifier: GPL-2.0
/*
 * Stand-in for the mlx5 driver: no hypervisor emulates its device. It puts
 * functions with the names and prototypes of the driver's own in front of a
 * software RDMA device, so that real verbs with real arguments pass through
 * them. Unloading it gives the device back its own functions.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/version.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

static char *netdev = "dummy0";
module_param(netdev, charp, 0444);
MODULE_PARM_DESC(netdev, "network device below the RDMA device");

static struct ib_device *ibdev;
static struct ib_device_ops real;

/* The driver has them in a header of its own. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 15, 0)
int mlx5_ib_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
#else
struct ib_qp *mlx5_ib_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr, struct ib_udata *udata);
#endif
int mlx5_ib_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int mlx5_ib_destroy_qp(struct ib_qp *qp, struct ib_udata *udata);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#define CQ_CONTEXT struct uverbs_attr_bundle
#else
#define CQ_CONTEXT struct ib_udata
#endif
int mlx5_ib_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, CQ_CONTEXT *context);
int mlx5_ib_create_user_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, CQ_CONTEXT *context);
int mlx5_ib_destroy_cq(struct ib_cq *cq, struct ib_udata *udata);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define DMAH_PARAM struct ib_dmah *dmah,
#define DMAH_ARG dmah,
#else
#define DMAH_PARAM
#define DMAH_ARG
#endif
struct ib_mr *mlx5_ib_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
				  DMAH_PARAM struct ib_udata *udata);
int mlx5_ib_dereg_mr(struct ib_mr *mr, struct ib_udata *udata);

static noinline int mlx5_ib_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return real.alloc_pd(pd, udata);
}

static noinline int mlx5_ib_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return real.dealloc_pd(pd, udata);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 15, 0)
noinline int mlx5_ib_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	return real.create_qp(qp, attr, udata);
}
#else
noinline struct ib_qp *mlx5_ib_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	return real.create_qp(pd, attr, udata);
}
#endif

noinline int mlx5_ib_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	return real.modify_qp(qp, attr, mask, udata);
}

noinline int mlx5_ib_destroy_qp(struct ib_qp *qp, struct ib_udata *udata)
{
	return real.destroy_qp(qp, udata);
}

noinline int mlx5_ib_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, CQ_CONTEXT *context)
{
	return real.create_cq(cq, attr, context);
}

/* Newer drivers have one function for CQs of programs and one for the kernel's. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
noinline int mlx5_ib_create_user_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, CQ_CONTEXT *context)
{
	if (real.create_user_cq)
		return real.create_user_cq(cq, attr, context);
	return real.create_cq(cq, attr, context);
}
#endif

noinline int mlx5_ib_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	return real.destroy_cq(cq, udata);
}

noinline struct ib_mr *mlx5_ib_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
					   DMAH_PARAM struct ib_udata *udata)
{
	return real.reg_user_mr(pd, start, length, iova, access, DMAH_ARG udata);
}

noinline int mlx5_ib_dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	return real.dereg_mr(mr, udata);
}

/* Only the functions that a stand-in replaces are written: the others may be in use. */
static void set_ops(const struct ib_device_ops *from)
{
	struct ib_device_ops *ops = &ibdev->ops;

	WRITE_ONCE(ops->alloc_pd, from->alloc_pd);
	WRITE_ONCE(ops->dealloc_pd, from->dealloc_pd);
	WRITE_ONCE(ops->create_qp, from->create_qp);
	WRITE_ONCE(ops->modify_qp, from->modify_qp);
	WRITE_ONCE(ops->destroy_qp, from->destroy_qp);
	WRITE_ONCE(ops->create_cq, from->create_cq);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
	WRITE_ONCE(ops->create_user_cq, from->create_user_cq);
#endif
	WRITE_ONCE(ops->destroy_cq, from->destroy_cq);
	WRITE_ONCE(ops->reg_user_mr, from->reg_user_mr);
	WRITE_ONCE(ops->dereg_mr, from->dereg_mr);
}

static const struct ib_device_ops standin = {
	.alloc_pd = mlx5_ib_alloc_pd,
	.dealloc_pd = mlx5_ib_dealloc_pd,
	.create_qp = mlx5_ib_create_qp,
	.modify_qp = mlx5_ib_modify_qp,
	.destroy_qp = mlx5_ib_destroy_qp,
	.create_cq = mlx5_ib_create_cq,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
	.create_user_cq = mlx5_ib_create_user_cq,
#endif
	.destroy_cq = mlx5_ib_destroy_cq,
	.reg_user_mr = mlx5_ib_reg_user_mr,
	.dereg_mr = mlx5_ib_dereg_mr,
};

static int __init standin_init(void)
{
	struct net_device *ndev = dev_get_by_name(&init_net, netdev);

	if (!ndev) {
		pr_err("mlx5_ib stand-in: no network device %s\n", netdev);
		return -ENODEV;
	}
	ibdev = ib_device_get_by_netdev(ndev, RDMA_DRIVER_UNKNOWN);
	dev_put(ndev);
	if (!ibdev) {
		pr_err("mlx5_ib stand-in: no RDMA device on %s\n", netdev);
		return -ENODEV;
	}
	real = ibdev->ops;
	set_ops(&standin);
	return 0;
}

static void __exit standin_exit(void)
{
	set_ops(&real);
	ib_device_put(ibdev);
}

module_init(standin_init);
module_exit(standin_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("mlx5_ib stand-in on a software RDMA device");
