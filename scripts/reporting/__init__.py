# SPDX-License-Identifier: Apache-2.0
"""What scripts/report.py is made of: rows (reading), style (colours), plots (pictures), page (HTML)."""
