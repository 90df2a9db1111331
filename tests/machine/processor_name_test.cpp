#include "machine/processor_name.h"

#include <gtest/gtest.h>

#include <sstream>

namespace echelon {
namespace {

std::string name_in(const std::string& cpuinfo) {
  std::istringstream text(cpuinfo);
  return processor_name(text);
}

/// As arch/arm64/kernel/cpuinfo.c prints a core.
std::string core_of_arm(const std::string& implementer, const std::string& part) {
  return "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm aes crc32 atomics fphp asimdhp cpuid\n"
         "CPU implementer\t: " +
         implementer + "\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: " + part + "\nCPU revision\t: 1\n\n";
}

TEST(ProcessorName, IsTheModelsWhereThereIsOne) {
  EXPECT_EQ(name_in("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
                    "model name\t: AMD EPYC 9R14\nstepping\t: 1\n"),
            "AMD EPYC 9R14");
  EXPECT_EQ(name_in(""), "unknown");
}

// Arm's codes: Neoverse N1, V1 and V2 technical reference manuals, MIDR_EL1.
TEST(ProcessorName, IsFoundByTheCodesOfArm) {
  EXPECT_EQ(name_in(core_of_arm("0x41", "0xd0c")), "Arm Neoverse N1");
  EXPECT_EQ(name_in(core_of_arm("0x41", "0xd40")), "Arm Neoverse V1");
  EXPECT_EQ(name_in(core_of_arm("0x41", "0xd4f") + core_of_arm("0x41", "0xd0c")), "Arm Neoverse V2");
  EXPECT_EQ(name_in(core_of_arm("0x51", "0xc00")), "Arm, implementer 0x51 part 0xc00");
}

}  // namespace
}  // namespace echelon
