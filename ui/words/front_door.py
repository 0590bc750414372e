"""The sentences of the owner's front door section. messages.py puts them beside the others."""

from __future__ import annotations

from typing import Final

FRONT_DOOR: Final = {
    "en": {
        "door_heading": "Address for colleagues",
        "door_own": "On this PC: {url}",
        "door_name": "Also by name, where the device knows such names "
        "(Windows 10 and later, Apple, most Android): {url}",
        "door_none": "This PC is not connected to a network, so colleagues cannot come. "
        "Plug the network cable in or join the Wi-Fi, then press Look again.",
        "door_not_shared": "The setting host keeps colleagues out: only this PC can open the page. "
        "Set host to 0.0.0.0 and start the program again to let them in.",
        "door_more": "More than one network is connected. If the first address does not open, try: {urls}",
        "door_virtual": "Only over a VPN or on virtual machines: {urls}",
        "door_changed": "The address has changed. It was {url}: bookmarks and printed codes of it no longer work. "
        "Hand out the new one. The router can give this PC the same address for ever "
        "(a reserved or static DHCP address).",
        "door_qr": "QR code of {url}",
        "door_qr_hint": "A phone in the same network opens the page with its camera. "
        "Right-click the picture to copy or print it.",
        "door_firewall": "If colleagues cannot open the address",
        "door_network": "Are they in the same network? Guest Wi-Fi often keeps devices apart.",
        "door_rule_ufw": "This PC has the firewall ufw. In a terminal:",
        "door_rule_firewalld": "This PC has the firewall firewalld. In a terminal:",
        "door_rule_nftables": "This PC has the firewall nftables. In a terminal, and to keep it after a restart "
        "the same rule in /etc/nftables.conf:",
        "door_rule_iptables": "This PC has the firewall iptables. In a terminal, until the next restart of this PC:",
        "door_rule_windows": "In a command prompt that was opened with Run as administrator. "
        "The network must count as private, not public, in Windows' settings:",
        "door_rule_macos": "macOS asks by itself whether the program may accept connections: allow it. "
        "Later: System Settings, Network, Firewall, Options.",
        "door_rule_none": "No firewall was found on this PC. "
        "If there is one elsewhere, it has to let TCP port {port} pass.",
        "door_look": "Look again",
    },
    "zh": {
        "door_heading": "同事使用的地址",
        "door_own": "本机：{url}",
        "door_name": "也可使用名称（Windows 10 及以上、苹果设备和多数安卓设备支持）：{url}",
        "door_none": "这台电脑没有连接网络，同事无法打开。请插好网线或连接 Wi-Fi，然后按“重新查看”。",
        "door_not_shared": "设置 host 不允许其他电脑访问：只有本机能打开页面。"
        "如需开放，请将 host 设为 0.0.0.0 并重新启动程序。",
        "door_more": "这台电脑连接了多个网络。如果第一个地址打不开，请试：{urls}",
        "door_virtual": "仅在 VPN 或虚拟机中可用：{urls}",
        "door_changed": "地址已改变。原来是 {url}，其书签和打印的二维码已失效，请分发新的地址。"
        "可在路由器中为这台电脑保留固定地址（DHCP 静态分配）。",
        "door_qr": "{url} 的二维码",
        "door_qr_hint": "同一网络中的手机用相机扫码即可打开。右键点击图片可复制或打印。",
        "door_firewall": "如果同事打不开地址",
        "door_network": "是否在同一个网络？访客 Wi-Fi 往往会隔离设备。",
        "door_rule_ufw": "这台电脑装有防火墙 ufw，请在终端中运行：",
        "door_rule_firewalld": "这台电脑装有防火墙 firewalld，请在终端中运行：",
        "door_rule_nftables": "这台电脑装有防火墙 nftables，请在终端中运行；"
        "如需重启后仍有效，请把同一规则写入 /etc/nftables.conf：",
        "door_rule_iptables": "这台电脑装有防火墙 iptables，请在终端中运行（电脑重启后失效）：",
        "door_rule_windows": "请在“以管理员身份运行”的命令提示符中运行。"
        "该网络在 Windows 设置中须为专用网络，而非公用网络：",
        "door_rule_macos": "macOS 会自动询问是否允许程序接受连接，请选择允许。"
        "之后可在“系统设置 → 网络 → 防火墙 → 选项”中修改。",
        "door_rule_none": "这台电脑上没有发现防火墙。如果别处有防火墙，需放行 TCP 端口 {port}。",
        "door_look": "重新查看",
    },
}
