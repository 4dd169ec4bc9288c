// SPDX-License-Identifier: GPL-2.0
/*
 * Stand-in for the driver's module that talks to the firmware: functions with the names and prototypes of mlx5_core, and a firmware
 * that answers as configured. Write a command to the parameter of that name; the command has ended when the write returns:
 *
 *     FUNCTION OPCODE OP_MOD UID RESULT STATUS SYNDROME
 *
 * RESULT is 0 if the command reaches the firmware, which answers with STATUS and SYNDROME. Otherwise it is the error of sending.
 */
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/mlx5/device.h>
#include <linux/mlx5/driver.h>
#include <linux/module.h>
#include <linux/mm.h>
#include <linux/version.h>
#include <linux/workqueue.h>

/* Newer drivers have a function that leaves the status to the caller. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 18, 0)
#define HAVE_CMD_DO
#endif

static struct mlx5_core_dev *mdev;
static struct mlx5_async_ctx async;
static int result;
static u8 answer[16];

static noinline int cmd_exec(struct mlx5_core_dev *dev, void *in, int in_size, void *out, int out_size)
{
	usleep_range(200, 400);
	if (result)
		return result;
	memcpy(out, answer, sizeof(answer));
	return 0;
}

/* As in the driver's own cmd.c. */
static int status_to_err(u8 status)
{
	switch (status) {
	case MLX5_CMD_STAT_OK:				return 0;
	case MLX5_CMD_STAT_INT_ERR:			return -EIO;
	case MLX5_CMD_STAT_BAD_OP_ERR:			return -EINVAL;
	case MLX5_CMD_STAT_BAD_PARAM_ERR:		return -EINVAL;
	case MLX5_CMD_STAT_BAD_SYS_STATE_ERR:		return -EIO;
	case MLX5_CMD_STAT_BAD_RES_ERR:			return -EINVAL;
	case MLX5_CMD_STAT_RES_BUSY:			return -EBUSY;
	case MLX5_CMD_STAT_LIM_ERR:			return -ENOMEM;
	case MLX5_CMD_STAT_BAD_RES_STATE_ERR:		return -EINVAL;
	case MLX5_CMD_STAT_IX_ERR:			return -EINVAL;
	case MLX5_CMD_STAT_NO_RES_ERR:			return -EAGAIN;
	case MLX5_CMD_STAT_BAD_QP_STATE_ERR:		return -EINVAL;
	case MLX5_CMD_STAT_BAD_PKT_ERR:			return -EINVAL;
	case MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR:	return -EINVAL;
	case MLX5_CMD_STAT_BAD_INP_LEN_ERR:		return -EIO;
	case MLX5_CMD_STAT_BAD_OUTP_LEN_ERR:		return -EIO;
	default:					return -EIO;
	}
}

#ifdef HAVE_CMD_DO
noinline int mlx5_cmd_do(struct mlx5_core_dev *dev, void *in, int in_size, void *out, int out_size)
{
	int err = cmd_exec(dev, in, in_size, out, out_size);

	if (!err && *(u8 *)out)
		err = -EREMOTEIO;
	return err;
}

noinline int mlx5_cmd_exec(struct mlx5_core_dev *dev, void *in, int in_size, void *out, int out_size)
{
	int err = mlx5_cmd_do(dev, in, in_size, out, out_size);

	return err == -EREMOTEIO ? status_to_err(*(u8 *)out) : err;
}
#else
noinline int mlx5_cmd_exec(struct mlx5_core_dev *dev, void *in, int in_size, void *out, int out_size)
{
	int err = cmd_exec(dev, in, in_size, out, out_size);

	return err ? err : status_to_err(*(u8 *)out);
}
#endif

noinline int mlx5_cmd_exec_polling(struct mlx5_core_dev *dev, void *in, int in_size, void *out, int out_size)
{
	int err = cmd_exec(dev, in, in_size, out, out_size);

	return err ? err : status_to_err(*(u8 *)out);
}

static struct {
	struct delayed_work work;
	void (*volatile handler)(int status, void *work);
	struct mlx5_async_work *async;
	void *out;
} pending;

static noinline void mlx5_cmd_exec_cb_handler(int status, void *_work)
{
	struct mlx5_async_work *work = _work;

#ifdef HAVE_CMD_DO
	if (!status && *(u8 *)pending.out)
		status = -EREMOTEIO;
#endif
	work->user_callback(status, work);
}

static void complete_async(struct work_struct *work)
{
	memcpy(pending.out, answer, sizeof(answer));
#ifdef HAVE_CMD_DO
	pending.handler(0, pending.async);
#else
	pending.handler(status_to_err(answer[0]), pending.async);
#endif
}

noinline int mlx5_cmd_exec_cb(struct mlx5_async_ctx *ctx, void *in, int in_size, void *out, int out_size,
			      mlx5_async_cbk_t callback, struct mlx5_async_work *work)
{
	work->ctx = ctx;
	work->user_callback = callback;
	if (result)
		return result;
	pending.async = work;
	pending.out = out;
	schedule_delayed_work(&pending.work, msecs_to_jiffies(20));
	return 0;
}

static void callback(int status, struct mlx5_async_work *work)
{
}

static int set_command(const char *text, const struct kernel_param *kp)
{
	static struct mlx5_async_work work;
	static u8 out[16];
	u32 opcode, op_mod, uid, status, syndrome;
	char function[32];
	__be16 in[8] = {};

	if (!mdev || sscanf(text, "%31s %i %i %i %i %i %i", function, &opcode, &op_mod, &uid, &result, &status, &syndrome) != 7)
		return -EINVAL;
	in[0] = cpu_to_be16(opcode);
	in[1] = cpu_to_be16(uid);
	in[3] = cpu_to_be16(op_mod);
	memset(answer, 0, sizeof(answer));
	answer[0] = status;
	*(__be32 *)(answer + 4) = cpu_to_be32(syndrome);
	/* What an earlier command left there is not an answer to this one. */
	memset(out, 0xff, sizeof(out));
	if (!strcmp(function, "mlx5_cmd_exec"))
		mlx5_cmd_exec(mdev, in, sizeof(in), out, sizeof(out));
#ifdef HAVE_CMD_DO
	else if (!strcmp(function, "mlx5_cmd_do"))
		mlx5_cmd_do(mdev, in, sizeof(in), out, sizeof(out));
#endif
	else if (!strcmp(function, "mlx5_cmd_exec_polling"))
		mlx5_cmd_exec_polling(mdev, in, sizeof(in), out, sizeof(out));
	else if (!strcmp(function, "mlx5_cmd_exec_cb"))
		mlx5_cmd_exec_cb(&async, in, sizeof(in), out, sizeof(out), callback, &work);
	else
		return -ENOENT;
	flush_delayed_work(&pending.work);
	return 0;
}

static const struct kernel_param_ops command_ops = { .set = set_command };
module_param_cb(command, &command_ops, NULL, 0200);
MODULE_PARM_DESC(command, "function, opcode, op_mod, uid, result, status, syndrome");

static int __init standin_init(void)
{
	struct device *device = root_device_register("0000:3b:00.0");

	if (IS_ERR(device))
		return PTR_ERR(device);
	mdev = kvzalloc(sizeof(*mdev), GFP_KERNEL);
	if (!mdev) {
		root_device_unregister(device);
		return -ENOMEM;
	}
	mdev->device = device;
	async.dev = mdev;
	pending.handler = mlx5_cmd_exec_cb_handler;
	INIT_DELAYED_WORK(&pending.work, complete_async);
	return 0;
}

static void __exit standin_exit(void)
{
	root_device_unregister(mdev->device);
	kvfree(mdev);
}

module_init(standin_init);
module_exit(standin_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("mlx5_core stand-in without a device");
