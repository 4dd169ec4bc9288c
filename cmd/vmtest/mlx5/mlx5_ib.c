// SPDX-License-Identifier: GPL-2.0
/*
 * Stand-in for the mlx5 driver: no hypervisor emulates its device. It puts functions with the names and prototypes of the driver's
 * own in front of a software RDMA device, so that real verbs call them with real arguments. Unloading it restores the device's own
 * functions.
 *
 * With OTHER_SIGNATURES the functions are from a driver for other kernels: they return other types.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/version.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>
/* A struct that the module's BTF only declares keeps fexit away from its function. */
#include <rdma/uverbs_ioctl.h>

static char *netdev = "dummy0";
module_param(netdev, charp, 0444);
MODULE_PARM_DESC(netdev, "network device below the RDMA device");

static int fail;
module_param(fail, int, 0644);
MODULE_PARM_DESC(fail, "what creating a QP fails with, like -12; 0 lets it pass");

static int fail_dereg;
module_param(fail_dereg, int, 0644);
MODULE_PARM_DESC(fail_dereg, "what deregistering the next MR fails with");

static struct ib_device *ibdev;
static struct ib_device_ops real;

/* Since 5.15 ib_core makes the QP that the driver fills in. */
#if (LINUX_VERSION_CODE >= KERNEL_VERSION(5, 15, 0)) != defined(OTHER_SIGNATURES)
#define CREATE_QP_RETURNS_INT
#endif

/* The driver has them in a header of its own. */
#ifdef CREATE_QP_RETURNS_INT
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
#ifdef OTHER_SIGNATURES
void mlx5_ib_destroy_cq(struct ib_cq *cq, struct ib_udata *udata);
#else
int mlx5_ib_destroy_cq(struct ib_cq *cq, struct ib_udata *udata);
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define DMAH_PARAM struct ib_dmah *dmah,
#define DMAH_ARG dmah,
#else
#define DMAH_PARAM
#define DMAH_ARG
#endif
struct ib_mr *mlx5_ib_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
				  DMAH_PARAM struct ib_udata *udata);
struct ib_mr *mlx5_ib_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 virt_addr, int fd,
					 int access, DMAH_PARAM CQ_CONTEXT *context);
int mlx5_ib_dereg_mr(struct ib_mr *mr, struct ib_udata *udata);

static noinline int mlx5_ib_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return real.alloc_pd(pd, udata);
}

#ifdef OTHER_SIGNATURES
/* As before 5.10; the register is left as a result would leave it. */
static noinline void mlx5_ib_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	WARN_ON(real.dealloc_pd(pd, udata));
}

static int op_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	mlx5_ib_dealloc_pd(pd, udata);
	return 0;
}
#else
static noinline int mlx5_ib_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return real.dealloc_pd(pd, udata);
}
#define op_dealloc_pd mlx5_ib_dealloc_pd
#endif

#ifdef OTHER_SIGNATURES
/* The QP that the caller has, and that the other kind of function does not get or return. */
static DEFINE_MUTEX(creating);
static struct ib_qp *created;

#ifdef CREATE_QP_RETURNS_INT
noinline int mlx5_ib_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	if (fail)
		return fail;
	created = real.create_qp(qp->pd, attr, udata);
	if (IS_ERR(created))
		return PTR_ERR(created);
	qp->qp_num = created->qp_num;
	return 0;
}

static struct ib_qp *op_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	static struct ib_qp qp;
	struct ib_qp *result;
	int err;

	mutex_lock(&creating);
	qp.device = pd->device;
	qp.pd = pd;
	err = mlx5_ib_create_qp(&qp, attr, udata);
	result = err ? ERR_PTR(err) : created;
	mutex_unlock(&creating);
	return result;
}
#else
noinline struct ib_qp *mlx5_ib_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	int err = fail ? fail : real.create_qp(created, attr, udata);

	return err ? ERR_PTR(err) : created;
}

static int op_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct ib_qp *result;

	mutex_lock(&creating);
	created = qp;
	result = mlx5_ib_create_qp(qp->pd, attr, udata);
	mutex_unlock(&creating);
	return PTR_ERR_OR_ZERO(result);
}
#endif
#else
#define op_create_qp mlx5_ib_create_qp
#ifdef CREATE_QP_RETURNS_INT
noinline int mlx5_ib_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	return fail ? fail : real.create_qp(qp, attr, udata);
}
#else
noinline struct ib_qp *mlx5_ib_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	return fail ? ERR_PTR(fail) : real.create_qp(pd, attr, udata);
}
#endif
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

#ifdef OTHER_SIGNATURES
noinline void mlx5_ib_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	WARN_ON(real.destroy_cq(cq, udata));
}

static int op_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	mlx5_ib_destroy_cq(cq, udata);
	return 0;
}
#else
noinline int mlx5_ib_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	return real.destroy_cq(cq, udata);
}
#define op_destroy_cq mlx5_ib_destroy_cq
#endif

noinline struct ib_mr *mlx5_ib_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
					   DMAH_PARAM struct ib_udata *udata)
{
	return real.reg_user_mr(pd, start, length, iova, access, DMAH_ARG udata);
}

/*
 * The software device does not support dmabufs. So only the parameter below calls this. It fails, or claims to have made an MR that
 * is never used.
 */
noinline struct ib_mr *mlx5_ib_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 virt_addr, int fd,
						  int access, DMAH_PARAM CQ_CONTEXT *context)
{
	static struct ib_mr mr = { .lkey = 0x1234, .rkey = 0x5678 };

	return fd < 0 ? ERR_PTR(-EBADF) : &mr;
}

static struct ib_mr *(*volatile reg_dmabuf)(struct ib_pd *pd, u64 offset, u64 length, u64 virt_addr, int fd, int access,
					    DMAH_PARAM CQ_CONTEXT *context) = mlx5_ib_reg_user_mr_dmabuf;

static int set_dmabuf(const char *text, const struct kernel_param *kp)
{
	u64 offset, length, iova;
	struct ib_pd *pd;
	int fd, access;

	if (!ibdev || sscanf(text, "%lli %lli %lli %i %i", &offset, &length, &iova, &fd, &access) != 5)
		return -EINVAL;
	pd = ib_alloc_pd(ibdev, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
	reg_dmabuf(pd, offset, length, iova, fd, access, NULL, NULL);
#else
	reg_dmabuf(pd, offset, length, iova, fd, access, NULL);
#endif
	ib_dealloc_pd(pd);
	return 0;
}

static const struct kernel_param_ops dmabuf_ops = { .set = set_dmabuf };
module_param_cb(dmabuf, &dmabuf_ops, NULL, 0200);
MODULE_PARM_DESC(dmabuf, "offset, length, iova, fd, access: registers a dmabuf in a PD of the kernel");

noinline int mlx5_ib_dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	int err = xchg(&fail_dereg, 0);

	return err ? err : real.dereg_mr(mr, udata);
}

/* Writes only the functions that a stand-in replaces: the others may be in use. */
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
	.dealloc_pd = op_dealloc_pd,
	.create_qp = op_create_qp,
	.modify_qp = mlx5_ib_modify_qp,
	.destroy_qp = mlx5_ib_destroy_qp,
	.create_cq = mlx5_ib_create_cq,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
	.create_user_cq = mlx5_ib_create_user_cq,
#endif
	.destroy_cq = op_destroy_cq,
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
