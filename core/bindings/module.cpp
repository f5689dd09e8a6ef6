// penstock._core: the native parts, private to the package. Each file binds its own functions; this one lists them.
#include <nanobind/nanobind.h>

void bind_partition(nanobind::module_&);
void bind_pricing(nanobind::module_&);
void bind_ratio_cut(nanobind::module_&);
void bind_warm_start(nanobind::module_&);
namespace penstock {
void bind_image(nanobind::module_&);
void bind_kernels(nanobind::module_&);
void bind_process(nanobind::module_&);
void bind_rate(nanobind::module_&);
void bind_tally(nanobind::module_&);
void bind_waiting(nanobind::module_&);
void bind_socket(nanobind::module_&);
void bind_region(nanobind::module_&);
void bind_ring(nanobind::module_&);
void bind_ring_frames(nanobind::module_&);
}

NB_MODULE(_core, module) {
    module.doc() = "Native parts of Penstock; use them through the Python modules that wrap them.";
    bind_partition(module);
    bind_pricing(module);
    bind_ratio_cut(module);
    bind_warm_start(module);
    penstock::bind_image(module);
    penstock::bind_kernels(module);
    penstock::bind_process(module);
    penstock::bind_rate(module);
    penstock::bind_tally(module);
    penstock::bind_waiting(module);
    penstock::bind_socket(module);
    penstock::bind_region(module);
    penstock::bind_ring(module);
    penstock::bind_ring_frames(module);
}
