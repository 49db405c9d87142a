// usage: node browser.mjs PLAYWRIGHT CHROMIUM URL NAME [FLAGS…]
//
// Opens the URL of a page of Gatekit in a browser without scripts, logs in with a name at the
// provider, presses the button of the page, consents, and prints the heading of the last page. The
// other lines of stdout are the headings of Gatekit's pages and the texts of their lists. FLAGS are
// flags of Chromium. If the variable GATEKIT_SCREENSHOT names a folder, it gets images of Gatekit's
// pages: light, dark, and as narrow as a phone.
import { pathToFileURL } from 'node:url'

const [library, executablePath, url, name, ...flags] = process.argv.slice(2)
const { chromium } = (await import(pathToFileURL(library))).default

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', ...flags] })
const context = await browser.newContext({ javaScriptEnabled: false })
const page = await context.newPage()
page.setDefaultTimeout(120_000)
let images = 0
const takeImages = async () => {
  const folder = process.env.GATEKIT_SCREENSHOT
  if (!folder) return
  images++
  for (const [width, colorScheme] of [[1280, 'light'], [1280, 'dark'], [390, 'light']]) {
    await page.setViewportSize({ width, height: 844 })
    await page.emulateMedia({ colorScheme })
    await page.screenshot({ path: `${folder}/${name}-${images}-${colorScheme}-${width}.png` })
  }
}
try {
  let answer = await page.goto(url)
  for (;;) {
    const login = page.locator('input[name=login]')
    if (await login.count()) {
      await login.fill(name)
      await page.locator('input[name=password]').fill('x')
      await page.locator('button[type=submit]').click()
    } else if (await page.locator('input[value=consent]').count()) {
      await page.locator('button[type=submit]').click()
    } else {
      console.log(await page.getByRole('main').getByRole('heading', { level: 1 }).innerText())
      await takeImages()
      const button = page.getByRole('button', { name: 'Continue to the login' })
      if (!(await button.count())) break
      for (const text of await page.getByRole('definition').allInnerTexts()) console.log(text)
      await page.keyboard.press('Tab') // to the only thing that takes the focus
      await page.keyboard.press('Enter')
      await page.waitForURL((u) => u.href !== url)
    }
    await page.waitForLoadState()
  }
  const cookies = (await context.cookies()).filter((c) => c.name.includes('gatekit'))
  console.log(cookies.map((c) => `${c.name} ${c.secure} ${c.httpOnly} ${c.sameSite}`).join())
} finally {
  await browser.close()
}
