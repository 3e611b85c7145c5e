from fixture import TreeTest, run


class CountPackages(TreeTest):
    def counted(self, text, *arguments):
        """Returns what the script prints of a tree with this file of the core."""
        self.plant("runtime/world.hpp", text)
        result = run("count-packages", "--root", self.root, *arguments)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

    def test_files_and_lines_of_each_package_are_counted(self):
        self.plant("backends/gloo/gloo.cpp", "\n" * 7)
        printed = self.counted("\n" * 11)
        self.assertRegex(printed, r"core +9 +24\n")
        self.assertRegex(printed, r"backends +1 +7\n")
        self.assertRegex(printed, r"program +1 +2\n")
        self.assertRegex(printed, r"tests +1 +1\n")
        self.assertRegex(printed, r"longest files:\n +11  runtime/world.hpp\n +7  backends/gloo/gloo.cpp\n")

    def test_a_class_of_more_data_members_than_the_limit_is_named(self):
        self.assertIn("data members: none", self.counted("struct a {\n" + "  int x;\n" * 25 + "};\n"))
        self.assertRegex(self.counted("class a final : public b<int> {\n" + "  int x_{};\n" * 26 + "};\n"),
                         r"more than 25 data members: 1\n +26  a \(runtime/world.hpp\)")

    def test_a_class_of_the_core_with_too_many_data_members_fails_the_check(self):
        self.plant("processes/server.hpp", "struct server {\n" + "  int x;\n" * 26 + "};\n")
        self.plant("runtime/world.hpp", "struct world {\n" + "  int x;\n" * 25 + "};\n")
        self.assert_passes("count-packages", "--check")
        self.plant("runtime/world.hpp", "struct world {\n" + "  int x;\n" * 26 + "};\n")
        result = run("count-packages", "--check", "--root", self.root)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("runtime/world.hpp: world has 26 data members, more than the limit of 25", result.stdout)
        self.assertIn("count-packages: 1 class of the core", result.stdout)

    def test_a_tree_without_a_core_cannot_be_checked(self):
        result = run("count-packages", "--check", "--root", self.root / "tests")
        self.assertEqual(result.returncode, 2, result.stdout)

    def test_only_data_members_are_counted(self):
        printed = self.counted('''
// class commented { int one; };
enum class none { a, b };
class owner : public base {
public:
  explicit owner(int a, int b = 2) : first_{a}, second_{b} {}
  owner(const owner&) = delete;
  owner& operator=(const owner&) = delete;
  friend bool operator==(const owner&, const owner&) = default;
  [[nodiscard]] std::map<int, int> all() const { return {{1, 2}}; }
  static constexpr int limit = 3;
  using list = std::vector<int>;
  template <class T> void take(T what);

private:
  struct nested { int inner; };
  enum class state { on, off } now_ = state::on;
  int first_, second_ = 2;
  std::function<void(int, int)> call_;
  void (*release_)(void*, int) = nullptr;
  alignas(64) std::atomic<int> count_{0};
  std::shared_ptr<int> made_ = std::make_shared<int>([this] { return first(1, 2); });
  const char* text_ = "a; int b; {";
};
''', "--members", "0")
        self.assertRegex(printed, r"data members: 2\n +8  owner .*\n +1  nested ")
