// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A stand-in for AMD's and NVIDIA's runtimes, for the tests of how the library calls them: one GPU, whose memory is a file in
 * memory of this process, and which runs no kernels. WITHOUT_AGENT_EXPORT, WITHOUT_EXPORT and WITHOUT_INTEROP leave functions
 * out, as older runtimes do. Calls that matter are counted and can be asked for.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory begins in the middle of its block, as where a runtime cuts allocations out of larger ones. */
#define BEFORE 8192
#define MOST 64

static struct {
	char *block;
	size_t len;
	int fd;
} memory[MOST];

static struct {
	void *ptr;
	size_t len;
} mapped[MOST];

/* What the test asks for: dma-bufs that were made and closed, maps that were made and undone. */
int fake_exported, fake_closed, fake_mapped, fake_unmapped;

static void *allocate(size_t len)
{
	for (int i = 0; i < MOST; i++) {
		if (memory[i].block)
			continue;
		memory[i].len = len + BEFORE;
		memory[i].fd = memfd_create("fake", 0);
		if (memory[i].fd < 0 || ftruncate(memory[i].fd, memory[i].len))
			return NULL;
		memory[i].block = mmap(NULL, memory[i].len, PROT_READ | PROT_WRITE, MAP_SHARED, memory[i].fd, 0);
		return memory[i].block == MAP_FAILED ? NULL : memory[i].block + BEFORE;
	}
	return NULL;
}

static int find(const void *ptr, size_t len)
{
	for (int i = 0; i < MOST; i++)
		if (memory[i].block && (char *)ptr >= memory[i].block + BEFORE &&
		    (char *)ptr + len <= memory[i].block + memory[i].len)
			return i;
	return -1;
}

static int release(void *ptr)
{
	int i = find(ptr, 0);

	if (i < 0)
		return 1;
	munmap(memory[i].block, memory[i].len);
	close(memory[i].fd);
	memory[i].block = NULL;
	return 0;
}

__attribute__((unused)) static void *map(int fd, size_t len)
{
	for (int i = 0; i < MOST; i++) {
		if (mapped[i].ptr)
			continue;
		void *ptr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (ptr == MAP_FAILED)
			return NULL;
		mapped[i].ptr = ptr;
		mapped[i].len = len;
		fake_mapped++;
		return ptr;
	}
	return NULL;
}

static int unmap(void *ptr)
{
	for (int i = 0; i < MOST; i++) {
		if (!ptr || mapped[i].ptr != ptr)
			continue;
		munmap(ptr, mapped[i].len);
		mapped[i].ptr = NULL;
		fake_unmapped++;
		return 0;
	}
	return 1;
}

/* HIP. */

int hipInit(unsigned flags) { return flags != 0; }
int hipGetDeviceCount(int *count) { return *count = 1, 0; }
int hipSetDevice(int device) { return device != 0; }
int hipDeviceGetName(char *name, int len, int device) { return strncpy(name, "fake", len), device != 0; }
int hipDeviceGetAttribute(int *value, int attribute, int device) { return *value = attribute == 10011, device != 0; }
int hipMalloc(void **ptr, size_t len) { return (*ptr = allocate(len)) == NULL; }
int hipExtMallocWithFlags(void **ptr, size_t len, unsigned flags) { return flags != 3 || hipMalloc(ptr, len); }
int hipFree(void *ptr) { return release(ptr); }
int hipMemset(void *ptr, int value, size_t len) { return memset(ptr, value, len), 0; }
int hipMemcpy(void *to, const void *from, size_t len, int kind) { return memcpy(to, from, len), kind != 4; }
/* Device registers (4) are refused, as upstream's kernel driver does. */
int hipHostRegister(void *ptr, size_t len, unsigned flags) { return flags != 2 || !ptr || !len; }
int hipHostUnregister(void *ptr) { return !ptr; }
int hipHostGetDevicePointer(void **to, void *ptr, unsigned flags) { return *to = ptr, flags != 0; }
int hipModuleLoadData(void **module, const void *code) { return *module = NULL, code ? 209 : 1; }
int hipModuleGetFunction(void **function, void *module, const char *name) { return *function = module, name ? 500 : 1; }
int hipModuleLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, void *s,
			  void **p, void **x)
{
	return f && a && b && c && d && e && g && h && s && p && x ? 1 : 98;
}
int hipStreamCreateWithFlags(void **stream, unsigned flags) { return *stream = NULL, flags != 1; }
int hipStreamQuery(void *stream) { return stream != NULL; }
int hipDeviceSynchronize(void) { return 0; }
const char *hipGetErrorString(int error) { return error ? "fake" : NULL; }
#ifndef WITHOUT_EXPORT
int hipMemGetHandleForAddressRange(void *handle, void *ptr, size_t len, int type, unsigned long long flags)
{
	/* The dma-buf is of this range alone, which a file that is mapped at an offset can not stand for. */
	int fd = memfd_create("range", 0);

	if (find(ptr, len) < 0 || type != 1 || flags != 1 || fd < 0 || ftruncate(fd, len))
		return 1;
	/* From now on the memory is that file. */
	if (mmap(ptr, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != ptr)
		return 1;
	fake_exported++;
	*(int *)handle = fd;
	return 0;
}
#endif

/* The layer below. An agent is a structure of one number. */

typedef unsigned (*callback)(uint64_t agent, void *data);

unsigned hsa_init(void) { return 0; }
unsigned hsa_iterate_agents(callback call, void *data) { return call(7, data); }
unsigned hsa_agent_get_info(uint64_t agent, unsigned what, void *value)
{
	if (agent != 7)
		return 0x1004;
	if (what == 0)
		strcpy(value, "gfx942");
	else
		*(uint32_t *)value = what == 17;
	return 0;
}
unsigned hsa_amd_memory_lock(void *ptr, size_t len, uint64_t *agents, int count, void **to)
{
	return *to = NULL, ptr && len && agents && count == 1 ? 0x1001 : 0x1000;
}
unsigned hsa_amd_memory_unlock(void *ptr) { return !ptr; }
#if !defined(WITHOUT_EXPORT) && !defined(WITHOUT_AGENT_EXPORT)
unsigned hsa_amd_portable_export_dmabuf(const void *ptr, size_t len, int *fd, uint64_t *offset)
{
	int i = find(ptr, len);

	if (i < 0)
		return 0x1001;
	*fd = dup(memory[i].fd);
	*offset = (const char *)ptr - memory[i].block;
	fake_exported++;
	return *fd < 0;
}
/* As on a GPU that does not know the way over the bus (1): the older function is for it. */
unsigned hsa_amd_portable_export_dmabuf_v2(const void *ptr, size_t len, int *fd, uint64_t *offset, uint64_t flags)
{
	return find(ptr, len) < 0 || !fd || !offset || flags != 1 ? 0x1000 : 0x1001;
}
unsigned hsa_amd_portable_close_dmabuf(int fd) { return fake_closed++, close(fd) != 0; }
#endif
#ifndef WITHOUT_INTEROP
unsigned hsa_amd_interop_map_buffer(uint32_t count, uint64_t *agents, int fd, uint32_t flags, size_t *size, void **ptr,
				    size_t *metadata_size, const void **metadata)
{
	off_t len = lseek(fd, 0, SEEK_END);

	if (count != 1 || *agents != 7 || flags || metadata_size || metadata || len <= 0)
		return 0x1001;
	*size = len;
	*ptr = map(fd, len);
	return *ptr ? 0 : 0x1001;
}
unsigned hsa_amd_interop_unmap_buffer(void *ptr) { return unmap(ptr); }
#endif

/* CUDA's driver. */

int cuInit(unsigned flags) { return flags != 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int n) { return *device = n, 0; }
int cuDeviceGetName(char *name, int len, int device) { return strncpy(name, "fake", len), device != 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return *value = attribute == 124, device != 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = memory, device != 0; }
int cuCtxSetCurrent(void *context) { return context != memory; }
int cuMemAlloc_v2(uint64_t *ptr, size_t len) { return (*ptr = (uint64_t)allocate(len)) == 0; }
int cuMemFree_v2(uint64_t ptr) { return unmap((void *)ptr) && release((void *)ptr); }
int cuMemsetD8_v2(uint64_t ptr, unsigned char value, size_t len) { return memset((void *)ptr, value, len), 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t len) { return memcpy((void *)to, from, len), 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t len) { return memcpy(to, (void *)from, len), 0; }
int cuMemHostRegister_v2(void *ptr, size_t len, unsigned flags) { return (flags & 4) || !ptr || !len ? 801 : 0; }
int cuMemHostUnregister(void *ptr) { return !ptr; }
int cuMemHostGetDevicePointer_v2(uint64_t *to, void *ptr, unsigned flags) { return *to = (uint64_t)ptr, flags != 0; }
int cuModuleLoadData(void **module, const void *code) { return *module = NULL, code ? 209 : 1; }
int cuModuleGetFunction(void **function, void *module, const char *name) { return *function = module, name ? 500 : 1; }
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, void *s, void **p,
		   void **x)
{
	return f && a && b && c && d && e && g && h && s && p && x ? 1 : 98;
}
int cuStreamCreate(void **stream, unsigned flags) { return *stream = NULL, flags != 1; }
int cuStreamSynchronize(void *stream) { return stream != NULL; }
int cuStreamQuery(void *stream) { return stream != NULL; }
int cuGetErrorString(int error, const char **text) { return *text = error ? "fake" : NULL, 0; }
#ifndef WITHOUT_EXPORT
int cuMemGetHandleForAddressRange(void *handle, uint64_t ptr, size_t len, int type, unsigned long long flags)
{
	if (ptr % 4096 || len % 4096 || flags)
		return 1;
	return hipMemGetHandleForAddressRange(handle, (void *)ptr, len, type, 1);
}
#endif
#ifndef WITHOUT_INTEROP
struct handle {
	int type;
	union {
		int fd;
		void *pair[2];
	} handle;
	unsigned long long size;
	unsigned flags, reserved[16];
};
struct range {
	unsigned long long offset, size;
	unsigned flags, reserved[16];
};
int cuImportExternalMemory(void **external, const struct handle *handle)
{
	if (handle->type != 9 || handle->flags || !handle->size)
		return 1;
	/* The descriptor belongs to the driver now. */
	*external = (void *)(uintptr_t)(handle->handle.fd + 1);
	return 0;
}
int cuExternalMemoryGetMappedBuffer(uint64_t *ptr, void *external, const struct range *range)
{
	if (range->offset || range->flags)
		return 1;
	return (*ptr = (uint64_t)map((int)(uintptr_t)external - 1, range->size)) == 0;
}
int cuDestroyExternalMemory(void *external) { return fake_closed++, close((int)(uintptr_t)external - 1) != 0; }
#endif
