# prometheus-cpp (metrics) for troupe's build and for programs that link a troupe built with it. Optional: without it a
# set metrics.address is refused with the remedy.
#
# troupe_find_prometheus() finds the targets prometheus-cpp::core and prometheus-cpp::pull; or it sets
# TROUPE_PROMETHEUS_PROBLEM to what is wrong and what to do.
macro(troupe_find_prometheus)
  set(TROUPE_PROMETHEUS_PROBLEM "")
  find_package(prometheus-cpp CONFIG QUIET)
  if(NOT prometheus-cpp_FOUND OR NOT TARGET prometheus-cpp::pull)
    string(CONCAT TROUPE_PROMETHEUS_PROBLEM
      "prometheus-cpp with its pull server was not found. On Debian and Ubuntu: apt-get install prometheus-cpp-dev. For "
      "one of your own: let prometheus-cpp_DIR name the folder of its prometheus-cpp-config.cmake")
  endif()
endmacro()
