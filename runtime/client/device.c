/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a device, which neither this process nor the daemon can copy. The driver's library knows, where the
 * program has loaded it: CUDA driver API, cuPointerGetAttribute; its values are part of that ABI.
 */
#include <dlfcn.h>

#include "client/lib.h"

#define MEMORY_TYPE 2 /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
#define IS_MANAGED 8  /* CU_POINTER_ATTRIBUTE_IS_MANAGED: of host and device */
#define DEVICE 2      /* CU_MEMORYTYPE_DEVICE */

typedef int get_attribute(void *data, int attribute, unsigned long long ptr);

static get_attribute *cuda(void)
{
	static const char name[] = "cuPointerGetAttribute";
	get_attribute *f = (get_attribute *)dlsym(RTLD_DEFAULT, name);
	void *lib;

	if (f)
		return f;
	lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!lib)
		return NULL;
	f = (get_attribute *)dlsym(lib, name);
	dlclose(lib); /* it stays, as the program has it */
	return f;
}

bool cl_memory_is_a_device_s(const void *p)
{
	unsigned long long at = (uintptr_t)p;
	get_attribute *get = cuda();
	unsigned type = 0;
	int managed = 0;

	return get && !get(&type, MEMORY_TYPE, at) && type == DEVICE &&
		!(!get(&managed, IS_MANAGED, at) && managed);
}
