/// Describes a machine with two sockets in hwloc's XML, for tests of answers that a test machine with one socket cannot
/// give.
///
///     package 0, NUMA node 0, CPUs 0-3      host bridge 10: a switch with 13:00.0 and 14:00.0; a port with 15:00.0
///                                           host bridge 20: 21:00.0
///     package 1, NUMA node 1, CPUs 4-7      host bridge 80: 81:00.0
///     location unknown                      host bridge f0: f1:00.0, host bridge e0: e1:00.0
#pragma once

namespace troupe::tests {

inline constexpr const char* two_sockets = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" gp_index="1" os_index="0" cpuset="0x000000ff" complete_cpuset="0x000000ff" nodeset="0x00000003" complete_nodeset="0x00000003" allowed_cpuset="0x000000ff" allowed_nodeset="0x00000003">
  <object type="Package" gp_index="2" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000001" complete_nodeset="0x00000001">
   <object type="NUMANode" gp_index="3" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000001" complete_nodeset="0x00000001"/>
   <object type="Core" gp_index="4" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001">
    <object type="PU" gp_index="5" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001"/>
   </object>
   <object type="Core" gp_index="6" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001">
    <object type="PU" gp_index="7" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001"/>
   </object>
   <object type="Core" gp_index="8" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000001" complete_nodeset="0x00000001">
    <object type="PU" gp_index="9" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000001" complete_nodeset="0x00000001"/>
   </object>
   <object type="Core" gp_index="10" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000001" complete_nodeset="0x00000001">
    <object type="PU" gp_index="11" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000001" complete_nodeset="0x00000001"/>
   </object>
   <object type="Bridge" gp_index="12" bridge_type="0-1" depth="0" bridge_pci="0000:[10-1f]">
    <object type="Bridge" gp_index="13" bridge_type="1-1" depth="1" bridge_pci="0000:[11-14]" pci_busid="0000:10:01.0" pci_type="0604 [1000:c030] [0000:0000] 04" pci_link_speed="63.015385">
     <object type="Bridge" gp_index="14" bridge_type="1-1" depth="2" bridge_pci="0000:[12-14]" pci_busid="0000:11:00.0" pci_type="0604 [1000:c030] [0000:0000] 04" pci_link_speed="63.015385">
      <object type="Bridge" gp_index="15" bridge_type="1-1" depth="3" bridge_pci="0000:[13-13]" pci_busid="0000:12:00.0" pci_type="0604 [1000:c030] [0000:0000] 04" pci_link_speed="63.015385">
       <object type="PCIDev" gp_index="16" pci_busid="0000:13:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.015385"/>
      </object>
      <object type="Bridge" gp_index="17" bridge_type="1-1" depth="3" bridge_pci="0000:[14-14]" pci_busid="0000:12:01.0" pci_type="0604 [1000:c030] [0000:0000] 04" pci_link_speed="63.015385">
       <object type="PCIDev" gp_index="18" pci_busid="0000:14:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.015385"/>
      </object>
     </object>
    </object>
    <object type="Bridge" gp_index="19" bridge_type="1-1" depth="1" bridge_pci="0000:[15-15]" pci_busid="0000:10:02.0" pci_type="0604 [1000:c030] [0000:0000] 04" pci_link_speed="63.015385">
     <object type="PCIDev" gp_index="20" pci_busid="0000:15:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.015385"/>
    </object>
   </object>
   <object type="Bridge" gp_index="21" bridge_type="0-1" depth="0" bridge_pci="0000:[20-2f]">
    <object type="Bridge" gp_index="22" bridge_type="1-1" depth="1" bridge_pci="0000:[21-21]" pci_busid="0000:20:01.0" pci_type="0604 [1000:c030] [0000:0000] 04" pci_link_speed="63.015385">
     <object type="PCIDev" gp_index="23" pci_busid="0000:21:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.015385"/>
    </object>
   </object>
  </object>
  <object type="Package" gp_index="24" os_index="1" cpuset="0x000000f0" complete_cpuset="0x000000f0" nodeset="0x00000002" complete_nodeset="0x00000002">
   <object type="NUMANode" gp_index="25" os_index="1" cpuset="0x000000f0" complete_cpuset="0x000000f0" nodeset="0x00000002" complete_nodeset="0x00000002"/>
   <object type="Core" gp_index="26" os_index="4" cpuset="0x00000010" complete_cpuset="0x00000010" nodeset="0x00000002" complete_nodeset="0x00000002">
    <object type="PU" gp_index="27" os_index="4" cpuset="0x00000010" complete_cpuset="0x00000010" nodeset="0x00000002" complete_nodeset="0x00000002"/>
   </object>
   <object type="Core" gp_index="28" os_index="5" cpuset="0x00000020" complete_cpuset="0x00000020" nodeset="0x00000002" complete_nodeset="0x00000002">
    <object type="PU" gp_index="29" os_index="5" cpuset="0x00000020" complete_cpuset="0x00000020" nodeset="0x00000002" complete_nodeset="0x00000002"/>
   </object>
   <object type="Core" gp_index="30" os_index="6" cpuset="0x00000040" complete_cpuset="0x00000040" nodeset="0x00000002" complete_nodeset="0x00000002">
    <object type="PU" gp_index="31" os_index="6" cpuset="0x00000040" complete_cpuset="0x00000040" nodeset="0x00000002" complete_nodeset="0x00000002"/>
   </object>
   <object type="Core" gp_index="32" os_index="7" cpuset="0x00000080" complete_cpuset="0x00000080" nodeset="0x00000002" complete_nodeset="0x00000002">
    <object type="PU" gp_index="33" os_index="7" cpuset="0x00000080" complete_cpuset="0x00000080" nodeset="0x00000002" complete_nodeset="0x00000002"/>
   </object>
   <object type="Bridge" gp_index="34" bridge_type="0-1" depth="0" bridge_pci="0000:[80-8f]">
    <object type="Bridge" gp_index="35" bridge_type="1-1" depth="1" bridge_pci="0000:[81-81]" pci_busid="0000:80:01.0" pci_type="0604 [1000:c030] [0000:0000] 04" pci_link_speed="63.015385">
     <object type="PCIDev" gp_index="36" pci_busid="0000:81:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.015385"/>
    </object>
   </object>
  </object>
  <object type="Bridge" gp_index="37" bridge_type="0-1" depth="0" bridge_pci="0000:[e0-ef]">
   <object type="Bridge" gp_index="38" bridge_type="1-1" depth="1" bridge_pci="0000:[e1-e1]" pci_busid="0000:e0:01.0" pci_type="0604 [1000:c030] [0000:0000] 04" pci_link_speed="63.015385">
    <object type="PCIDev" gp_index="39" pci_busid="0000:e1:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.015385"/>
   </object>
  </object>
  <object type="Bridge" gp_index="40" bridge_type="0-1" depth="0" bridge_pci="0000:[f0-ff]">
   <object type="Bridge" gp_index="41" bridge_type="1-1" depth="1" bridge_pci="0000:[f1-f1]" pci_busid="0000:f0:01.0" pci_type="0604 [1000:c030] [0000:0000] 04" pci_link_speed="63.015385">
    <object type="PCIDev" gp_index="42" pci_busid="0000:f1:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.015385"/>
   </object>
  </object>
 </object>
</topology>
)";

} // namespace troupe::tests
