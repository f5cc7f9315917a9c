// SPDX-License-Identifier: GPL-2.0
/* The ioctls of /dev/fakegpu, and the numbers by which a file names its exports and imports. */
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/xarray.h>

#include "fakegpu_priv.h"

struct fg_file {
	struct fg_device *fg;
	struct xarray handles;
};

/* A number's meaning: an export or an import. Requests under way keep it. */
struct fg_handle {
	struct kref kref;
	struct fg_buffer *buffer;
	struct fg_import *import;
};

static void fg_handle_release(struct kref *kref)
{
	struct fg_handle *handle = container_of(kref, struct fg_handle, kref);

	if (handle->buffer)
		dma_buf_put(handle->buffer->dmabuf);
	if (handle->import)
		fg_import_free(handle->import);
	kfree(handle);
}

static void fg_handle_put(struct fg_handle *handle)
{
	kref_put(&handle->kref, fg_handle_release);
}

DEFINE_FREE(fg_handle, struct fg_handle *, if (!IS_ERR_OR_NULL(_T)) fg_handle_put(_T))

/* Takes over the export or import, also on failure. */
static int fg_handle_create(struct fg_file *file, struct fg_buffer *buffer, struct fg_import *import, u32 *id)
{
	struct fg_handle *handle = kzalloc_obj(*handle);
	int ret;

	if (!handle) {
		if (buffer)
			dma_buf_put(buffer->dmabuf);
		if (import)
			fg_import_free(import);
		return -ENOMEM;
	}
	kref_init(&handle->kref);
	handle->buffer = buffer;
	handle->import = import;
	ret = xa_alloc(&file->handles, id, handle, xa_limit_31b, GFP_KERNEL);
	if (ret)
		fg_handle_put(handle);
	return ret;
}

static struct fg_handle *fg_handle_get(struct fg_file *file, u32 id)
{
	struct fg_handle *handle;

	xa_lock(&file->handles);
	handle = xa_load(&file->handles, id);
	if (handle)
		kref_get(&handle->kref);
	xa_unlock(&file->handles);
	return handle ?: ERR_PTR(-ENOENT);
}

static long fg_free(struct fg_file *file, const u32 *id)
{
	struct fg_handle *handle = xa_erase(&file->handles, *id);

	if (!handle)
		return -ENOENT;
	fg_handle_put(handle);
	return 0;
}

static long fg_export(struct fg_file *file, struct fakegpu_export *arg)
{
	struct fg_buffer *buffer = fg_buffer_create(file->fg, arg);
	struct dma_buf *dmabuf;
	int ret;

	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	dmabuf = buffer->dmabuf;
	/* One reference for the number, one for the descriptor. */
	get_dma_buf(dmabuf);
	ret = fg_handle_create(file, buffer, NULL, &arg->id);
	if (!ret) {
		ret = dma_buf_fd(dmabuf, O_CLOEXEC);
		if (ret >= 0) {
			arg->fd = ret;
			return 0;
		}
		fg_free(file, &arg->id);
	}
	dma_buf_put(dmabuf);
	return ret;
}

static long fg_import(struct fg_file *file, struct fakegpu_import *arg)
{
	struct fg_import *import = fg_import_create(file->fg, arg);

	if (IS_ERR(import))
		return PTR_ERR(import);
	arg->len = import->attach->dmabuf->size;
	return fg_handle_create(file, NULL, import, &arg->id);
}

static int fg_access_piece(struct fg_handle *handle, u64 offset, void *bytes, size_t len, bool write)
{
	if (handle->buffer)
		return fg_buffer_access(handle->buffer, offset, bytes, len, write);
	return fg_import_access(handle->import, offset, bytes, len, write);
}

/* By way of a page, since user memory may not be touched under the reservation lock. */
static long fg_access(struct fg_file *file, const struct fakegpu_access *arg, bool write)
{
	struct fg_handle *handle __free(fg_handle) = fg_handle_get(file, arg->id);
	void *bounce __free(kfree) = kmalloc(PAGE_SIZE, GFP_KERNEL);
	u64 done = 0;

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	if (!bounce)
		return -ENOMEM;
	if (arg->reserved || arg->len > U64_MAX - arg->offset)
		return -EINVAL;
	while (done < arg->len) {
		size_t piece = min_t(u64, arg->len - done, PAGE_SIZE);
		void __user *user = u64_to_user_ptr(arg->user + done);
		int ret;

		if (write && copy_from_user(bounce, user, piece))
			return -EFAULT;
		ret = fg_access_piece(handle, arg->offset + done, bounce, piece, write);
		if (ret)
			return ret;
		if (!write && copy_to_user(user, bounce, piece))
			return -EFAULT;
		done += piece;
	}
	return 0;
}

static long fg_invalidate(struct fg_file *file, const struct fakegpu_invalidate *arg)
{
	struct fg_handle *handle __free(fg_handle) = fg_handle_get(file, arg->id);

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	if (!handle->buffer)
		return -EINVAL;
	return fg_buffer_invalidate(handle->buffer, arg);
}

static long fg_stats(struct fg_file *file, struct fakegpu_stats *arg)
{
	struct fg_handle *handle __free(fg_handle) = fg_handle_get(file, arg->id);

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	*arg = (struct fakegpu_stats) { .id = arg->id };
	if (handle->buffer)
		fg_buffer_stats(handle->buffer, arg);
	else
		fg_import_stats(handle->import, arg);
	return 0;
}

static long fg_device_stats(struct fg_device *fg, struct fakegpu_device *arg)
{
	guard(mutex)(&fg->lock);
	*arg = (struct fakegpu_device) {
		.pages = fg->pages,
		.pages_used = fg->pages_used,
		.exports = fg->export_count,
		.imports = fg->import_count,
	};
	return 0;
}

union fg_argument {
	struct fakegpu_export export;
	struct fakegpu_import import;
	struct fakegpu_access access;
	struct fakegpu_invalidate invalidate;
	struct fakegpu_stats stats;
	struct fakegpu_device device;
	u32 id;
};

static long fg_dispatch(struct fg_file *file, unsigned int cmd, union fg_argument *arg)
{
	switch (cmd) {
	case FAKEGPU_EXPORT:
		return fg_export(file, &arg->export);
	case FAKEGPU_IMPORT:
		return fg_import(file, &arg->import);
	case FAKEGPU_READ:
		return fg_access(file, &arg->access, false);
	case FAKEGPU_WRITE:
		return fg_access(file, &arg->access, true);
	case FAKEGPU_INVALIDATE:
		return fg_invalidate(file, &arg->invalidate);
	case FAKEGPU_STATS:
		return fg_stats(file, &arg->stats);
	case FAKEGPU_DEVICE:
		return fg_device_stats(file->fg, &arg->device);
	case FAKEGPU_FREE:
		return fg_free(file, &arg->id);
	default:
		return -ENOTTY;
	}
}

/* While it runs, the function stays ours. */
static long fg_ioctl_alive(struct fg_file *file, unsigned int cmd, union fg_argument *arg)
{
	struct fg_device *fg = file->fg;
	long ret = down_read_killable(&fg->life);

	if (ret)
		return ret;
	ret = fg->dead ? -ENODEV : fg_dispatch(file, cmd, arg);
	up_read(&fg->life);
	return ret;
}

static long fg_ioctl(struct file *filp, unsigned int cmd, unsigned long user)
{
	union fg_argument arg = {};
	long ret;

	if (_IOC_TYPE(cmd) != 'F' || _IOC_SIZE(cmd) > sizeof(arg))
		return -ENOTTY;
	if (_IOC_DIR(cmd) & _IOC_WRITE && copy_from_user(&arg, (void __user *)user, _IOC_SIZE(cmd)))
		return -EFAULT;
	ret = fg_ioctl_alive(filp->private_data, cmd, &arg);
	if (!ret && _IOC_DIR(cmd) & _IOC_READ && copy_to_user((void __user *)user, &arg, _IOC_SIZE(cmd)))
		return -EFAULT;
	return ret;
}

static int fg_open(struct inode *inode, struct file *filp)
{
	struct fg_device *fg = container_of(filp->private_data, struct fg_device, misc);
	struct fg_file *file = kzalloc_obj(*file);

	if (!file)
		return -ENOMEM;
	xa_init_flags(&file->handles, XA_FLAGS_ALLOC1);
	kref_get(&fg->kref);
	file->fg = fg;
	filp->private_data = file;
	return 0;
}

static int fg_close(struct inode *inode, struct file *filp)
{
	struct fg_file *file = filp->private_data;
	struct fg_handle *handle;
	unsigned long id;

	/* The end of the function ends imports, too. */
	down_read(&file->fg->life);
	xa_for_each(&file->handles, id, handle)
		fg_handle_put(handle);
	up_read(&file->fg->life);
	xa_destroy(&file->handles);
	fg_device_put(file->fg);
	kfree(file);
	return 0;
}

const struct file_operations fg_fops = {
	.owner = THIS_MODULE,
	.open = fg_open,
	.release = fg_close,
	.unlocked_ioctl = fg_ioctl,
};
