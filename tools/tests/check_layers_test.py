from fixture import TreeTest


class CheckLayers(TreeTest):
    def test_a_clean_tree_passes(self):
        self.assert_passes("check-layers")

    def test_an_upward_include_is_caught_with_its_place_and_what_is_allowed(self):
        self.plant("completion/poller/track.cpp", "\n#include <troupe/actors/world/world_actor.hpp>\n")
        self.assert_catches("check-layers", "completion/poller/track.cpp:2:", "must not include actors", "device, completion")

    def test_an_upward_include_by_relative_path_is_caught(self):
        self.plant("device/device.cpp", '#include "../completion/slot.hpp"\n')
        self.assert_catches("check-layers", "device/device.cpp:1:", "must not include completion")

    def test_an_upward_include_between_the_folders_of_a_layer_is_caught_in_either_spelling(self):
        self.plant("collectives/order/arbiter.hpp", "#include <troupe/collectives/pipeline/launcher.hpp>\n")
        self.plant("collectives/pipeline/launcher.hpp", "#include <troupe/collectives/collective_settings.hpp>\n")
        self.assert_passes("check-layers")
        for where, include in (("pipeline/launcher.hpp", "<troupe/collectives/order/arbiter.hpp>"), ("operation/request.hpp", '"../order/arbiter.hpp"'),
                               ("backend/communicator.hpp", "<troupe/collectives/backend/mock/mock_call.hpp>"),
                               ("collective_settings.hpp", "<troupe/collectives/order/arbiter.hpp>")):
            with self.subTest(where):
                self.plant(f"collectives/{where}", f"#include {include}\n")
                self.assert_catches("check-layers", f"collectives/{where}:1:", "must not include collectives/", "it may include")
                self.plant(f"collectives/{where}", "")

    def test_a_folder_without_a_place_in_its_layers_order_is_caught(self):
        self.plant("collectives/helpers/sums.hpp", "#include <troupe/collectives/operation/operation.hpp>\n")
        self.assert_catches("check-layers", "collectives/helpers has no place in the order", "operation/lanes, operation, backend")

    def test_a_readme_that_shows_another_order_of_the_folders_is_caught(self):
        self.plant("collectives/README.md", "    operation ← operation/lanes ← backend\n")
        self.assert_catches("check-layers", "collectives/README.md does not show the order", "operation/lanes ← operation ← backend")

    def test_a_lower_layer_including_the_test_kit_is_caught(self):
        self.plant("actors/host.cpp", "#include <troupe/testing/world.hpp>\n")
        self.assert_catches("check-layers", "must not include testing")

    def test_the_core_includes_no_other_package_and_packages_do_not_include_each_other(self):
        for where, what in (("runtime/world.cpp", "processes"), ("runtime/runtime.cpp", "backends"), ("backends/gloo.cpp", "processes"),
                            ("processes/link.cpp", "testing"), ("testing/world.cpp", "backends")):
            with self.subTest(where):
                self.plant(where, f"#include <troupe/{what}/some.hpp>\n")
                self.assert_catches("check-layers", f"{where}:1:", f"must not include {what}")

    def test_the_header_of_all_layers_is_the_runtimes(self):
        self.plant("program/demo/demo.cpp", "#include <troupe/troupe.hpp>\n")
        self.assert_passes("check-layers")
        self.plant("collectives/operation/request.hpp", "#include <troupe/troupe.hpp>\n")
        self.assert_catches("check-layers", "collectives/operation/request.hpp:1:", "must not include runtime")

    def test_the_c_interface_includes_the_processes_and_no_package_includes_it(self):
        self.plant("c/world.cpp", '#include "troupe.h"\n#include <troupe/troupe.h>\n#include <troupe/processes/world_driver.hpp>\n')
        self.assert_passes("check-layers")
        self.plant("c/world.cpp", "#include <troupe/testing/mock_world.hpp>\n")
        self.assert_catches("check-layers", "c/world.cpp:1:", "must not include testing")
        self.plant("c/world.cpp", "")
        self.plant("program/demo/demo.cpp", "#include <troupe/troupe.h>\n")
        self.assert_catches("check-layers", "program/demo/demo.cpp:1:", "must not include c")

    def test_a_layer_that_does_not_exist_is_caught(self):
        self.plant("runtime/world.hpp", "#include <troupe/utils/strings.hpp>\n")
        self.assert_catches("check-layers", "utils is not a layer")

    def test_caf_outside_actors_and_runtime_is_caught_in_either_spelling(self):
        for include in ("<caf/actor.hpp>", '"caf/all.hpp"'):
            with self.subTest(include):
                self.plant("device/stream.hpp", f"# include {include}\n")
                self.assert_catches("check-layers", "device/stream.hpp:1:", "CAF", "allowed in actors, runtime")

    def test_cuda_outside_its_folders_is_caught(self):
        for header in ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "cuda_bf16.h", "cudaTypedefs.h"):
            with self.subTest(header):
                self.plant("device/memory/memory_pool.cpp", f"#include <{header}>\n")
                self.assert_catches("check-layers", "CUDA", "device/cuda")

    def test_nccl_outside_its_folder_is_caught(self):
        self.plant("collectives/pipeline/launcher.cpp", "#include <nccl.h>\n")
        self.assert_catches("check-layers", "NCCL", "collectives/backend/nccl")

    def test_gloo_outside_its_folder_is_caught(self):
        for header in ("gloo/context.h", "gloo/transport/tcp/device.h"):
            with self.subTest(header):
                self.plant("collectives/pipeline/launcher.cpp", f"#include <{header}>\n")
                self.assert_catches("check-layers", "Gloo", "backends/gloo")

    def test_hwloc_outside_device_is_caught(self):
        for header in ("hwloc.h", "hwloc/helper.h"):
            with self.subTest(header):
                self.plant("runtime/runtime.cpp", f"#include <{header}>\n")
                self.assert_catches("check-layers", "runtime/runtime.cpp:1:", "hwloc", "allowed in device")

    def test_openssl_outside_the_guard_is_caught(self):
        self.plant("actors/world/world_actor.cpp", "#include <openssl/ssl.h>\n")
        self.assert_catches("check-layers", "actors/world/world_actor.cpp:1:", "OpenSSL", "allowed in processes/transport")

    def test_libraries_of_the_runtime_are_caught_below_it(self):
        for header, layer in (("spdlog/spdlog.h", "runtime"), ("CLI/CLI.hpp", "program"), ("nlohmann/json.hpp", "runtime")):
            with self.subTest(header):
                self.plant("actors/supervisor.cpp", f"#include <{header}>\n")
                self.assert_catches("check-layers", "actors/supervisor.cpp:1:", f"allowed in {layer}")

    def test_an_include_in_a_comment_is_none(self):
        self.plant("device/stream.hpp", "// #include <caf/actor.hpp>\n")
        self.assert_passes("check-layers")


class PublicHeaders(TreeTest):
    def setUp(self):
        super().setUp()
        self.plant("runtime/troupe.hpp", "#include <troupe/device/stream.hpp>\n")
        self.plant("runtime/actors.hpp", "#include <caf/actor.hpp>\n#include <troupe/troupe.hpp>\n")
        self.plant("testing/world.hpp", "")
        self.listed("device/stream.hpp", "runtime/actors.hpp", "testing/world.hpp", "runtime/troupe.hpp")

    def listed(self, *paths):
        self.plant("cmake/public_headers.cmake", "# What is installed.\nset(TROUPE_PUBLIC_HEADERS\n  " + "\n  ".join(paths) + ")\n")

    def test_headers_that_include_public_ones_pass(self):
        self.assert_passes("check-layers")

    def test_a_public_header_that_includes_an_internal_one_is_caught(self):
        self.plant("device/stream.hpp", "#include <troupe/device/inner.hpp>\n")
        self.plant("device/inner.hpp", "")
        self.assert_catches("check-layers", "device/stream.hpp: the public header includes device/inner.hpp, which is not public")

    def test_a_client_of_the_tree_that_includes_an_internal_header_is_caught(self):
        self.plant("python/src/request.cpp", "#include <troupe/device/stream.hpp>\n#include <troupe/device/inner.hpp>\n")
        self.assert_catches("check-layers", "python/src/request.cpp: device/inner.hpp is not installed")

    def test_caf_behind_the_threads_umbrella_is_caught_with_the_header_that_includes_it(self):
        self.plant("device/stream.hpp", "#include <caf/actor.hpp>\n")
        self.assert_catches("check-layers", "device/stream.hpp: <troupe/troupe.hpp> includes caf/actor.hpp through this header")

    def test_too_many_public_headers_are_caught(self):
        extra = [f"device/h{i}.hpp" for i in range(81)]
        for path in extra:
            self.plant(path, "")
        self.listed("device/stream.hpp", "runtime/actors.hpp", "testing/world.hpp", "runtime/troupe.hpp", *extra)
        self.assert_catches("check-layers", "85 public headers, more than the limit of 80")

    def test_a_listed_header_that_does_not_exist_is_caught(self):
        self.listed("device/gone.hpp", "device/stream.hpp", "runtime/actors.hpp", "testing/world.hpp", "runtime/troupe.hpp")
        self.assert_catches("check-layers", "device/gone.hpp does not exist")

    def test_a_missing_list_is_caught(self):
        self.plant("cmake/public_headers.cmake", "")
        self.assert_catches("check-layers", "no set(TROUPE_PUBLIC_HEADERS")
