// A library that claims to be some version of NCCL and can do nothing else; see nccl_fake.cmake.
extern "C" int ncclGetVersion(int* version) {
  *version = TROUPE_FAKE_NCCL_VERSION;
  return 0;
}
